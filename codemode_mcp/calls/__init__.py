"""One nested call of a program: its arguments, whether it may be made, and its way to a tool and back."""
