#!/usr/bin/env bash
# Installs the Debian packages named in the given lists, and only those that are missing: a second run costs nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

missing=()
for list in "$@"; do
  while read -r package; do
    case "$package" in
      '' | '#'*) continue ;;
      nodejs | npm) command -v node > /dev/null && command -v npm > /dev/null && continue ;;
      python3) command -v python3 > /dev/null && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'install ok installed' || missing+=("$package")
  done < "$here/$list"
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || {
    echo "These Debian packages are missing, and there is neither root nor sudo to install them: ${missing[*]}" >&2
    exit 1
  }
  sudo=(sudo)
fi
echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
