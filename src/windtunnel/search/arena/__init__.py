"""Compares autoscaling policies on one pool: cost, SLO attainment and regret."""
