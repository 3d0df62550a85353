"""Tests of replays."""
