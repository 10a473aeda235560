"""The idle suite: how much of their slots schedules leave idle, case by case, and why."""
