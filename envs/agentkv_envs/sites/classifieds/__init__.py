"""The embedded classifieds site: second-hand ads of one town, with the shape of OSClass's addresses."""
