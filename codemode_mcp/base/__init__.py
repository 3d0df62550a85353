"""The parts that all rooms use: errors, settings, texts for people, JSON and folders."""
