"""Secure sums: clients mask their integers, so that a server learns the sum over a cohort and no single update.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017 (double masks, lost
clients), and J. H. Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020 (a few
neighbours for each client). All primitives come from the package cryptography.
"""
