"""The embedded encyclopedia "Fieldbook": invented places, plants, things and people, to be looked up, not edited."""
