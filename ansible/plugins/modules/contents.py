#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: reads several small files in one go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: contents
short_description: Reads several small files in one go
description:
  - Returns each file's content in base64, and nothing for a file that does not exist.
  - Changes nothing. Use C(no_log) if a file holds a secret.
options:
  paths:
    description: Absolute paths.
    type: list
    elements: path
    required: true
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: It only reads.
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: Look for the keys
  sanctl.san.contents:
    paths: [/etc/corosync/authkey]
  register: found
  no_log: true
"""

RETURN = r"""
contents:
  description: By path, the content in base64; an empty text where there is no file.
  type: dict
  returned: success
"""

import base64

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Read and tell."""
    module = AnsibleModule(
        argument_spec={"paths": {"type": "list", "elements": "path", "required": True}},
        no_log=True,
        supports_check_mode=True,
    )
    contents: dict[str, str] = {}
    for path in module.params["paths"]:
        try:
            with open(path, "rb") as file:
                contents[path] = base64.b64encode(file.read()).decode()
        except FileNotFoundError:
            contents[path] = ""
        except OSError as error:
            module.fail_json(msg=f"{path}: {error.strerror}")
    module.exit_json(changed=False, contents=contents)


if __name__ == "__main__":
    main()
