"""`codemode-mcp trace`: the timeline of a run, from the trajectory.

`reading` finds the events in the files, `event_fields` reads their members, `timeline` makes a timeline of them, `text`
draws it in a terminal, and `page` in HTML. `progress` does the same for a run of this process.
"""
