# SPDX-License-Identifier: GPL-2.0-or-later
"""What brings a damaged replica or pool back."""
