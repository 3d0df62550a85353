"""`codemode-mcp trace`: the timeline of a run, from the trajectory.

`audit.trajectory_files` finds the events of a run, and `audit.timeline` builds the timeline from them. `text` draws a
timeline in a terminal, and `page` draws it in HTML. `progress` follows a run of this process.
"""
