// In every document of an embedded site it is the sites' today, from nine o'clock on. The clock runs: animations need it.
(() => {
  const today = Date.UTC(2026, 2, 14, 9, 0, 0);
  const Real = Date;
  const now = () => today + Math.floor(performance.now());
  const Today = new Proxy(Real, {
    construct: (target, args, self) => Reflect.construct(target, args.length ? args : [now()], self === Today ? Real : self),
    apply: () => new Real(now()).toString(),
    get: (target, key) => (key === "now" ? now : Reflect.get(target, key, target)),
  });
  Real.prototype.constructor = Today;
  window.Date = Today;
})();
