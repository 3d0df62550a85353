"""The page: what a serving process does, and the decisions of a person, in a browser of its user.

`listener` opens it on a loopback port. `sessions` admits a browser, and `guard` checks every request. `site` has the
addresses, each module in `views` the pages of one subject. `changes` tells open pages what has changed. Templates and
assets are files that are used as they are.

A page asks and changes nothing in its own way: it sends the requests of the control socket, as a terminal does. The
modules of this extension are imported when a person opens the page.
"""
