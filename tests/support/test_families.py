# SPDX-License-Identifier: GPL-2.0-or-later
"""Which family of faults each module of tests/lab and tests/chaos belongs to."""

from __future__ import annotations

FAMILIES = {
    "Backups, second sites": (
        "test_backups",
        "test_lose_a_site",
        "test_second_site",
        "test_site_groups",
        "test_site_hold",
        "test_site_restore",
        "test_site_rollout",
        "test_site_turn",
        "test_site_turn_older_cib",
    ),
    "Caches": (
        "test_cache_policies",
        "test_cache_protected",
        "test_cache_volatile",
        "test_drbd9_write_back",
        "test_only_good_replica",
        "test_read_cache",
        "test_write_back_power_loss",
        "test_zeroing",
    ),
    "Device agent": (
        "test_action_service",
        "test_change_after_cleanup",
        "test_device_agent",
        "test_dm_swap",
        "test_drbdadm_one_resource",
        "test_forgotten_role",
        "test_reload_killed",
        "test_resource_files",
        "test_short_monitor",
        "test_short_monitor_alone",
    ),
    "Discovery": ("test_discovery",),
    "Disks that fail": (
        "test_hung_io",
        "test_pool_agent",
        "test_pools_full",
        "test_pool_shut_down",
        "test_read_errors",
        "test_read_errors_promote",
        "test_read_errors_start",
        "test_unwritten_cib",
    ),
    "Diverged replicas": ("test_all_disks_replaced", "test_heal"),
    "Documentation": ("test_docs",),
    "Failover": (
        "test_cib_check",
        "test_crashed_primary",
        "test_each_kind",
        "test_failover",
        "test_last_node",
        "test_many_devices",
        "test_replica_states",
    ),
    "Fencing": (
        "test_accepted_risk",
        "test_fence_agents",
        "test_fence_busy_bmc",
        "test_fence_fallback",
        "test_fencing",
        "test_fencing_race",
        "test_handlers_killed",
        "test_iscsi_carrier",
        "test_lost_coordinator",
    ),
    "Flash": ("test_bcache", "test_pool_cache"),
    "Hosts and commands": (
        "test_chap",
        "test_conformance",
        "test_create_many",
        "test_data_path",
        "test_disabled_by_hand",
        "test_doctor_remote",
        "test_host_blocks",
        "test_host_groups",
        "test_host_paths",
        "test_host_sequences",
        "test_hyperconverged",
        "test_offloads",
        "test_reservations",
        "test_reservations_kept",
        "test_reservations_multipath",
        "test_target_access",
        "test_two_creators",
    ),
    "Laboratory and rollout": ("test_hostile_superblocks", "test_laboratory", "test_rollout"),
    "Number of replicas": (
        "test_drbd9_added_replica",
        "test_drbd9_heal",
        "test_drbd9_level_cuts",
        "test_drbd9_replicas",
        "test_replica_changes",
        "test_three_nodes",
    ),
    "Outdated replicas": (
        "test_all_marked",
        "test_outdated_marks",
        "test_stale_standby",
        "test_standby_returns_alone",
    ),
    "Planned stops": ("test_planned_stops",),
    "Restore points": (
        "test_clones",
        "test_device_restore",
        "test_drbd9_points",
        "test_lone_points",
        "test_lost_points",
        "test_point_extents",
        "test_point_exports",
        "test_point_group_hooks",
        "test_point_groups",
        "test_point_hooks",
        "test_point_operations",
        "test_point_schedules",
        "test_restore_points",
    ),
    "Resync and verify": ("test_resync_and_verify", "test_resync_power_cut", "test_sync_watch"),
    "SBD": ("test_sbd", "test_sbd_disks"),
    "Stale reads": ("test_stale_read",),
    "Votes": (
        "test_qnetd_tls",
        "test_quorum_library",
        "test_strategy",
        "test_votes",
        "test_witness",
    ),
}


def module_of(test: str) -> str:
    """Return the module of a test's node id: `tests/lab/test_x.py::test_y[z]` is of `test_x`."""
    return test.partition(".py::")[0].rpartition("/")[2]


def family_of(test: str) -> str:
    """Return the family of a test, by its node id.

    Raises:
        LookupError: its module is in no family.
    """
    module = module_of(test)
    for family, modules in FAMILIES.items():
        if module in modules:
            return family
    raise LookupError(f"{module} is in no family: add it to FAMILIES in {__name__}")
