"""KEDA: its policy, cron schedules and formulas over metrics."""
