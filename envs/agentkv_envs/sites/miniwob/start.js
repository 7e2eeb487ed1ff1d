/* Starts the page's one episode with its seed, without a clock, and says when it has ended. */
(seed => {
  const begin = core.startEpisode;
  let started = false;
  const hide = id => {
    const element = document.getElementById(id);
    if (element) element.style.display = "none";
  };
  core.startEpisode = () => {
    if (started) {
      const note = document.createElement("p");
      note.setAttribute("role", "status");
      note.textContent = "The task has ended.";
      document.body.append(note);
      return;
    }
    started = true;
    begin();
    Math.seedrandom(seed);
    core.EPISODE_MAX_TIME = 1e8;
    core.startEpisodeReal();
    hide("reward-display");
    hide("click-canvas");
  };
})
