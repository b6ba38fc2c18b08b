"""Support of the tests: fakes, small set-ups and real processes that several test files share."""
