"""`codemode-mcp trace`: the timeline of a run, from the trajectory.

`reading` finds the events of a run in the files. `event_fields` reads the fields of events. `timeline` builds the
timeline from events. `text` draws a timeline in a terminal, and `page` draws it in HTML. `progress` follows a run of
this process.
"""
