"""The parts that the core can do without, one folder for each.

The module `extension` of a folder has an `Extension`, which names what the folder adds to the core; `extension_points`
has the rules. The core finds the folder by this module. Without the folder, everything else works as before.
"""
