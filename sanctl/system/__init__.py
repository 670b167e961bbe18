# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts programs, forks, locks, durable writes, state files, the journal, a clock for sanctl.ops.

What holds of it, and is checked (pyproject.toml): outside the laboratory only `runner` and
`piped_process` start programs and only `isolated_call`, `forked_call` and `parallel_calls` fork;
whether a path exists is asked of `files`; model, parse, render, plan and config import nothing that
reads a file or the time; ops reads the time and waits by `clock`. Agents, drivers and the command
line read files and the time themselves.
"""
