"""`codemode-mcp trace`: what one run did and when, out of the trajectory.

`reading` finds its events in the files, `timeline` makes of them what happened when, `text` draws that in a terminal
and `page` as one page of HTML.
"""
