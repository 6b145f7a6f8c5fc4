"""Ray sessions, jobs, evaluation over a cluster, the doctor."""
