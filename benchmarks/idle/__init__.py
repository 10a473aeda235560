"""The idle suite: how much of their capacity schedules leave idle, case by case, and why."""
