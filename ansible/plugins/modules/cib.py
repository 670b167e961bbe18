#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: brings parts of Pacemaker's configuration to what they should be."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cib
short_description: Brings parts of Pacemaker's configuration to what they should be
description:
  - Waits until the cluster has elected its controller and knows the nodes; before that Pacemaker
    refuses changes with a misleading schema error.
  - Compares by meaning (order and white space do not count) and pushes one patch if anything
    differs. The patch names the version it was made from; if somebody else changed the
    configuration meanwhile, the patch is made again.
  - Touches only what O(configuration) names. Meta attributes that operators added to one of these
    resources stay.
options:
  configuration:
    description:
      - XML of a C(configuration) element. Below C(crm_config), C(nvpair) elements by name; below
        C(resources), C(constraints) and C(fencing-topology), whole elements by id.
    type: str
    required: true
  owned:
    description:
      - Ids by which a part is known as one that O(configuration) may have named before, its own or
        one of an element right below it. A part with such an id that O(configuration) does not name
        any more is removed.
    type: list
    elements: str
    default: []
  agents:
    description:
      - By id of an element of C(resources), the agents among which it may change, as
        C(class:provider:type), or what that begins with. An element that is there with another tag,
        class, provider or type than O(configuration) gives it is somebody else's, and refused.
    type: dict
    default: {}
  agents_of_all:
    description:
      - Ids of primitives whose agent may be missing on the O(unseen) nodes. While there are some,
        the element around such a primitive stays as it is where its agent would change; a warning
        says so.
    type: list
    elements: str
    default: []
  rules:
    description:
      - By name of a property, when it is changed. C(raise), a time that becomes longer and never
        shorter; C(if-set), only where it is set to something else than zero; C(if-unset), only
        where it is not set. Without a rule it always is.
    type: dict
    default: {}
  relied_on:
    description:
      - Names of properties and ids of C(nvpair) elements by which the cluster comes to rely on
        something of every node. They get no new value, but zero, while there are O(unseen) nodes.
    type: list
    elements: str
    default: []
  node_files:
    description:
      - What an option's value begins with that reads a file which every node needs. While there are
        O(unseen) nodes, no device of class C(stonith) is added, gets another type, or another such
        option.
    type: str
    default: ""
  unseen:
    description: Nodes of the cluster that take no part in this run.
    type: list
    elements: str
    default: []
  nodes:
    description: The nodes the cluster must know before anything is changed.
    type: list
    elements: str
    default: []
  timeout_s:
    description: How long to wait for the cluster.
    type: int
    default: 90
attributes:
  check_mode:
    support: full
    description: Reports what would change. Without a running cluster, that is everything.
  diff_mode:
    support: full
    description: Shows the elements that differ.
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: Fencing is on
  sanctl.san.cib:
    configuration: |
      <configuration>
        <crm_config><nvpair name="stonith-enabled" value="true"/></crm_config>
      </configuration>
"""

RETURN = r"""
changed_parts:
  description: The properties and ids that were changed, or would be.
  type: list
  elements: str
  returned: success
"""

import copy
import os
import re
import tempfile
import time
import xml.etree.ElementTree as ET

from ansible.module_utils.basic import AnsibleModule

BOOTSTRAP = "cib-bootstrap-options"
# In these elements the order of the children means nothing.
UNORDERED = frozenset({"instance_attributes", "meta_attributes", "operations"})
# Elements that refer to a resource are removed before the resource.
REMOVED_FROM = ("fencing-topology", "constraints", "resources")
UNITS_S = {"": 1, "s": 1, "sec": 1, "ms": 0.001, "msec": 0.001, "m": 60, "min": 60}


class StaleError(Exception):
    """The configuration was changed by somebody else between reading and writing."""


def canonical(element: ET.Element) -> tuple:
    """Return a value that is equal for elements of equal meaning."""
    children = [canonical(child) for child in element]
    if element.tag in UNORDERED:
        children.sort()
    return element.tag, tuple(sorted(element.attrib.items())), tuple(children)


def keep_operators_meta(wanted: ET.Element, present: ET.Element) -> None:
    """Add to `wanted` the meta attributes that only `present` has."""
    ours = {element.get("id"): element for element in wanted.iter("meta_attributes")}
    for old in present.iter("meta_attributes"):
        new = ours.get(old.get("id"))
        if new is None:
            # Its parent: the same primitive or clone in `wanted`.
            owners = [owner for owner in present.iter() if old in list(owner)]
            matches = [
                element
                for element in wanted.iter(owners[0].tag)
                if element.get("id") == owners[0].get("id")
            ]
            if matches:
                matches[0].insert(0, copy.deepcopy(old))
            continue
        named = {pair.get("name") for pair in new}
        new.extend(copy.deepcopy(pair) for pair in old if pair.get("name") not in named)


def section(configuration: ET.Element, name: str) -> ET.Element:
    """Return a section of the configuration, made if it is missing."""
    found = configuration.find(name)
    return found if found is not None else ET.SubElement(configuration, name)


def seconds(value: str) -> float | None:
    """Return a time of Pacemaker's in seconds; None if it is not known what it is."""
    found = re.fullmatch(r"\s*(-?\d+)\s*([a-z]*)\s*", value)
    if not found or found[2] not in UNITS_S:
        return None
    return int(found[1]) * UNITS_S[found[2]]


def is_left(rule: str, old: str | None, value: str) -> bool:
    """Tell whether a property stays as it is, by its rule."""
    if rule == "if-unset":
        return old is not None
    if rule == "if-set":
        return old is None or seconds(old) == 0
    if rule == "raise" and old is not None:
        now_s, wanted_s = seconds(old), seconds(value)
        return now_s is None or wanted_s is None or now_s >= wanted_s
    return False


def apply_properties(
    wanted: ET.Element, present: ET.Element, rules: dict[str, str]
) -> list[tuple[str, str, str]]:
    """Set cluster properties; return name, old and new of those that changed."""
    changes = []
    for pair in wanted:
        name, value = pair.get("name", ""), pair.get("value", "")
        matches = [item for item in present.iter("nvpair") if item.get("name") == name]
        if is_left(rules.get(name, ""), matches[0].get("value", "") if matches else None, value):
            continue
        if matches:
            old = matches[0].get("value", "")
            if old == value:
                continue
            matches[0].set("value", value)
        else:
            old = ""
            sets = [item for item in present if item.get("id") == BOOTSTRAP]
            target = (
                sets[0]
                if sets
                else ET.SubElement(present, "cluster_property_set", {"id": BOOTSTRAP})
            )
            ET.SubElement(
                target, "nvpair", {"id": f"{BOOTSTRAP}-{name}", "name": name, "value": value}
            )
        changes.append((name, old, value))
    return changes


def apply_elements(wanted: ET.Element, present: ET.Element) -> list[tuple[str, str, str]]:
    """Put whole elements in place; return id, old and new text of those that changed."""
    changes = []
    for original in wanted:
        name = original.get("id", "")
        element = copy.deepcopy(original)
        index = next((i for i, old in enumerate(present) if old.get("id") == name), None)
        if index is None:
            present.append(element)
            changes.append((name, "", pretty(element)))
            continue
        keep_operators_meta(element, present[index])
        if canonical(element) != canonical(present[index]):
            changes.append((name, pretty(present[index]), pretty(element)))
            present[index] = element
    return changes


def remove_unnamed(
    wanted: ET.Element, configuration: ET.Element, owned: list[str]
) -> list[tuple[str, str, str]]:
    """Remove what has one of these ids and is not in `wanted`; return what that removed."""
    named = {part.get("id") for tag in REMOVED_FROM for part in wanted.iterfind(f"{tag}/*")}
    changes = []
    for tag in REMOVED_FROM:
        present = configuration.find(tag)
        for part in list(present) if present is not None else []:
            name = part.get("id", "")
            if name not in named and any(each.get("id") in owned for each in (part, *part)):
                present.remove(part)
                changes.append((name, pretty(part), ""))
    return changes


def kinds(element: ET.Element) -> dict[str, str]:
    """Return what each element with an id is, by id: an agent, or its tag for what has none."""
    return {
        part.get("id", ""): ":".join(
            value for key in ("class", "provider", "type") if (value := part.get(key))
        )
        if part.tag == "primitive"
        else part.tag
        for part in element.iter()
        if part.get("id")
    }


def foreign_elements(
    wanted: ET.Element, configuration: ET.Element, agents: dict[str, list[str]]
) -> list[str]:
    """Return the elements with an id of `wanted` that are something else, or somewhere else.

    Put in place of such an element, `wanted` would take away what somebody made: a device, say.
    """
    found = []
    for name in ("resources", "constraints", "fencing-topology"):
        ours = {part.get("id"): part for part in wanted.iterfind(f"{name}/*")}
        replaced = [part for part in configuration.iterfind(f"{name}/*") if part.get("id") in ours]
        within = {id(part) for old in replaced for part in old.iter()}
        elsewhere = {
            part.get("id"): part.tag
            for part in configuration.iter()
            if part.get("id") and id(part) not in within
        }
        for part in ours.values():
            is_new = kinds(part)
            found += [f"{elsewhere[each]} {each}" for each in is_new if each in elsewhere]
        for old in replaced:
            is_now, is_new = kinds(old), kinds(ours[old.get("id")])
            primitives = [each.get("id") for each in ours[old.get("id")].iter("primitive")]
            # A resource around another primitive than ours is another resource.
            found += [
                f"primitive {each.get('id')} in {old.tag} {old.get('id')}"
                for each in old.iter("primitive")
                if each.get("id") not in primitives
            ]
            found += [
                f"{is_now[each]} {each}"
                for each in is_new
                if each in is_now
                and is_now[each] != is_new[each]
                and not all(
                    any(kind == may or kind.startswith(f"{may}:") for may in agents.get(each, []))
                    for kind in (is_now[each], is_new[each])
                )
            ]
    return sorted(set(found))


def keep_agents(wanted: ET.Element, configuration: ET.Element, names: list[str]) -> list[str]:
    """Put elements as they are in place of those that would change one of these primitives' agent.

    Returns what the agents are, and stay.
    """
    present = {part.get("id"): part for part in configuration.iterfind("resources/*")}
    resources, kept = section(wanted, "resources"), []
    for index, part in enumerate(list(resources)):
        old = present.get(part.get("id"))
        if old is None:
            continue
        is_now, is_new = kinds(old), kinds(part)
        stay = [
            f"{name} stays {is_now[name]}"
            for name in names
            if name in is_now and name in is_new and is_now[name] != is_new[name]
        ]
        if stay:
            resources[index] = copy.deepcopy(old)
            kept += stay
    return kept


def foreign_levels(wanted: ET.Element, configuration: ET.Element, owned: list[str]) -> list[str]:
    """Return the fencing levels of others for nodes that `wanted` has levels for.

    Pacemaker takes devices of the same level together, and fences with all of them.
    """
    ours = wanted.findall("fencing-topology/fencing-level")
    named = {level.get("id") for level in ours}
    targets = {level.get("target") for level in ours}
    return [
        level.get("id", "")
        for level in configuration.iterfind("fencing-topology/fencing-level")
        if level.get("target") in targets and level.get("id") not in {*named, *owned}
    ]


def apply(
    wanted: ET.Element,
    configuration: ET.Element,
    owned: list[str],
    rules: dict[str, str] | None = None,
) -> list[tuple[str, str, str]]:
    """Change `configuration` to hold what `wanted` says; return what that changed."""
    changes = remove_unnamed(wanted, configuration, owned)
    for part in wanted:
        present = section(configuration, part.tag)
        if part.tag == "crm_config":
            changes += apply_properties(part, present, rules or {})
        else:
            changes += apply_elements(part, present)
    return changes


def values(configuration: ET.Element, names: list[str]) -> dict[str, str]:
    """Return the values of properties by their name, and of other nvpairs by their id."""
    properties = {id(pair) for pair in configuration.iterfind("crm_config//nvpair")}
    found = {
        pair.get("name" if id(pair) in properties else "id", ""): pair.get("value", "")
        for pair in configuration.iter("nvpair")
    }
    return {name: found[name] for name in names if name in found}


def newly_relied_on(old: ET.Element, new: ET.Element, names: list[str]) -> list[str]:
    """Return what the cluster would rely on that it did not rely on before."""
    before = values(old, names)
    return [
        f"{name}={value}"
        for name, value in values(new, names).items()
        if value != before.get(name) and seconds(value) != 0
    ]


def fence_needs(configuration: ET.Element, node_files: str) -> dict[str, tuple]:
    """Return what each fencing device needs on nodes that use it: an agent, a password's file."""
    return {
        part.get("id", ""): (
            part.get("type", ""),
            *sorted(
                (pair.get("name", ""), pair.get("value", ""))
                for pair in part.iterfind("instance_attributes/nvpair")
                if node_files and pair.get("value", "").startswith(node_files)
            ),
        )
        for part in configuration.iterfind("resources//primitive")
        if part.get("class") == "stonith"
    }


def newly_needed(old: ET.Element, new: ET.Element, node_files: str) -> list[str]:
    """Return the fencing devices that need something of nodes which they did not need before."""
    before = fence_needs(old, node_files)
    return [
        f"{name} with {needs[0]}"
        for name, needs in sorted(fence_needs(new, node_files).items())
        if needs != before.get(name)
    ]


def kept_longer(wanted: ET.Element, new: ET.Element, rules: dict[str, str]) -> list[str]:
    """Say which times stay longer than `wanted` has them."""
    asked = {
        pair.get("name", ""): pair.get("value", "") for pair in wanted.iterfind("crm_config/*")
    }
    names = [name for name, rule in rules.items() if rule == "raise" and name in asked]
    return [
        f"{name} stays {value}; the inventory asks for {asked[name]}"
        for name, value in values(new, names).items()
        if seconds(value) != seconds(asked[name])
    ]


def pretty(element: ET.Element) -> str:
    """Return XML for people."""
    element = copy.deepcopy(element)
    ET.indent(element)
    element.tail = None
    return ET.tostring(element, encoding="unicode") + "\n"


def next_version(cib: ET.Element) -> None:
    """Raise the version as the cluster itself does for a change of the configuration."""
    cib.set("epoch", str(int(cib.get("epoch", "0")) + 1))
    cib.set("num_updates", "0")


def query(module: AnsibleModule) -> ET.Element | None:
    """Return the live CIB, or None while there is no cluster to ask."""
    if module.get_bin_path("cibadmin") is None:
        # For example in check mode on a server without packages.
        return None
    code, out, _ = module.run_command(["cibadmin", "--query"])
    try:
        return ET.fromstring(out) if code == 0 else None
    except ET.ParseError:
        return None  # half an answer is none: asked again


def missing_of(cib: ET.Element | None, nodes: list[str]) -> str:
    """Return what the cluster still lacks before it may be changed, in words."""
    if cib is None:
        return "Pacemaker does not answer"
    if not cib.get("dc-uuid") or not cib.get("crm_feature_set"):
        return "no controller is elected"
    if cib.get("have-quorum") != "1":
        return "there is no quorum"
    known = {node.get("uname") for node in cib.iter("node")}
    absent = [node for node in nodes if node not in known]
    return f"{', '.join(absent)} have not joined" if absent else ""


def wait(module: AnsibleModule) -> ET.Element:
    """Return the CIB of a cluster that can be changed, or fail."""
    deadline = time.monotonic() + module.params["timeout_s"]
    while True:
        cib = query(module)
        missing = missing_of(cib, module.params["nodes"])
        if cib is not None and not missing:
            return cib
        if time.monotonic() > deadline:
            module.fail_json(
                msg=f"after {module.params['timeout_s']} s: {missing}."
                " Look at `corosync-cfgtool -s` and `journalctl -u corosync -u pacemaker`"
            )
        time.sleep(0.5)


def push(module: AnsibleModule, old: ET.Element, new: ET.Element) -> None:
    """Make a patch from one CIB to the other and have the cluster apply it.

    Raises:
        StaleError: the cluster's CIB is no longer `old`.
    """
    with tempfile.TemporaryDirectory(prefix="sanctl-cib-") as folder:
        paths = [os.path.join(folder, name) for name in ("old.xml", "new.xml", "patch.xml")]
        for path, cib in zip(paths, (old, new), strict=False):
            ET.ElementTree(cib).write(path, encoding="utf-8")
        code, out, error = module.run_command(
            ["crm_diff", "--original", paths[0], "--new", paths[1]]
        )
        if code not in (0, 1):
            module.fail_json(msg=f"crm_diff: {error}")
        with open(paths[2], "w", encoding="utf-8") as file:
            file.write(out)
        code, _, error = module.run_command(["cibadmin", "--patch", "--xml-file", paths[2]])
    if code == 0:
        return
    if "version" in error or "Update was older" in error or "diff" in error.lower():
        raise StaleError(error)
    module.fail_json(msg=f"Pacemaker refused the change: {error.strip()}")


def main() -> None:
    """Wait for the cluster, compare, apply the patch, report."""
    module = AnsibleModule(
        argument_spec={
            "configuration": {"type": "str", "required": True},
            "owned": {"type": "list", "elements": "str", "default": []},
            "agents": {"type": "dict", "default": {}},
            "agents_of_all": {"type": "list", "elements": "str", "default": []},
            "rules": {"type": "dict", "default": {}},
            "relied_on": {"type": "list", "elements": "str", "default": []},
            "node_files": {"type": "str", "default": ""},
            "unseen": {"type": "list", "elements": "str", "default": []},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "timeout_s": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    asked = ET.fromstring(module.params["configuration"])
    for attempt in range(20):
        wanted = copy.deepcopy(asked)
        if module.check_mode:
            cib = query(module)
            if cib is None:
                cib = ET.Element("cib")
                ET.SubElement(cib, "configuration")
        else:
            cib = wait(module)
        status = cib.find("status")
        if status is not None:
            # The status section is large and has no part in the patch.
            cib.remove(status)
        new = copy.deepcopy(cib)
        foreign = foreign_levels(wanted, section(new, "configuration"), module.params["owned"])
        if foreign:
            module.fail_json(
                msg=f"there are fencing levels that are not sanctl's: {', '.join(foreign)}."
                " Pacemaker would add to them; remove them (`pcs stonith level remove`, or cibadmin"
                " --delete), or state only one way to fence these nodes. Nothing was changed"
            )
        taken = foreign_elements(wanted, section(new, "configuration"), module.params["agents"])
        if taken:
            module.fail_json(
                msg=f"what sanctl would write has the ids of something else: {', '.join(taken)}."
                " Delete that, or make it anew under another name (a device: copy its data to one"
                " with another name, then `sanctl device delete`). Nothing was changed"
            )
        rules, configuration = module.params["rules"], section(new, "configuration")
        unseen, present = module.params["unseen"], section(cib, "configuration")
        names = module.params["agents_of_all"] if unseen else []
        kept = keep_agents(wanted, configuration, names)
        changes = apply(wanted, configuration, module.params["owned"], rules)
        relied = (
            newly_relied_on(present, configuration, module.params["relied_on"]) if unseen else []
        )
        if relied:
            module.fail_json(
                msg=f"the cluster would come to rely on SBD ({', '.join(relied)}), and"
                f" {', '.join(unseen)} took no part in this run: without SBD as configured there,"
                " Pacemaker ends on such a node, or the node is taken for dead while it serves."
                " Run the playbook without --limit, with all nodes up (docs/howto/fencing.md)."
                " Pacemaker's configuration was not changed"
            )
        files = module.params["node_files"]
        needed = newly_needed(present, configuration, files) if unseen else []
        if needed:
            module.fail_json(
                msg=f"the cluster would come to fence by {', '.join(needed)}, and"
                f" {', '.join(unseen)} took no part in this run: there the agent or the password's"
                " file may be missing, and a node is fenced by the others. Run the playbook without"
                " --limit, with all nodes up (docs/howto/fencing.md); take out first a node that is"
                " gone for good (`sanctl node remove`). Pacemaker's configuration was not changed"
            )
        if not changes or module.check_mode:
            break
        next_version(new)
        try:
            push(module, cib, new)
        except StaleError as error:
            if attempt == 19:
                module.fail_json(msg=f"the configuration keeps changing: {error}")
            time.sleep(0.2)
            continue
        break
    for text in kept:
        module.warn(
            f"{text}: {', '.join(unseen)} took no part in this run, and may not have the agent that"
            " is to take its place. Run the playbook without --limit, with all nodes up"
        )
    for text in kept_longer(wanted, configuration, rules):
        module.warn(
            f"{text}. Not every node's SBD and Pacemaker is known to run with the new value, and"
            " Pacemaker ends where its own is longer: restart them node by node"
            " (docs/howto/fencing.md), then run the playbook again, without --limit"
        )
    module.exit_json(
        changed=bool(changes),
        changed_parts=[name for name, _, _ in changes],
        diff=[
            {"before_header": name, "after_header": name, "before": old, "after": text}
            for name, old, text in changes
        ],
    )


if __name__ == "__main__":
    main()
