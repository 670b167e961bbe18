# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a replica Primary and Secondary."""
