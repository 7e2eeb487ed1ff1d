"""The portal "Townboard": links to the sites of an episode, and a notice board."""
