"""iNaturalist-User-120k and iNaturalist-Geo: photographs of iNaturalist 2017."""
