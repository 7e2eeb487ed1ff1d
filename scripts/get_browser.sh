#!/bin/sh
# Make sure that a headless Chromium starts here, installing one by whichever way works. Says what to do if none does.
set -u
python=${1:?usage: get_browser.sh PYTHON}

starts() {
    "$python" - 2>/dev/null <<'PY'
import asyncio
from agentkv_envs.browser import BrowserHost, find_executable

async def main() -> None:
    host = BrowserHost()
    browser = await host.get()
    print(f"browser: {find_executable() or 'Playwright'} {browser.version}")
    await host.close()

asyncio.run(main())
PY
}

starts && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "browser: installing chromium-headless-shell with apt-get"
    (apt-get update -qq && apt-get install -y -qq chromium-headless-shell fonts-dejavu-core) >/dev/null 2>&1
    starts && exit 0
fi
echo "browser: installing Playwright's Chromium"
if [ "$(id -u)" = 0 ]; then with_deps=--with-deps; else with_deps=; fi
"$python" -m playwright install $with_deps --only-shell chromium >/dev/null 2>&1
starts && exit 0
echo "no browser could be started; run 'sudo apt-get install chromium-headless-shell' or" \
    "'$python -m playwright install chromium', or set AGENTKV_CHROMIUM to a Chromium executable" >&2
exit 1
