"""Gang controllers: generate the pods of PodCliqueSets, place them, terminate and roll out."""
