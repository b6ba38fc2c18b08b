"""Tools of one machine, which are never bundled: simulation, comparison, report, deployment, guard and laboratory."""
