"""The lab: two network namespaces joined by a path of our own, whose delays, losses and counts are known exactly."""
