# SPDX-License-Identifier: GPL-2.0-or-later
"""Pure decisions: same input, same steps."""
