"""Participation policies: how many clients train in a round, by a schedule or by search (ISP)."""
