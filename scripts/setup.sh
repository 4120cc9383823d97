#!/usr/bin/env bash
# All set-up, from nothing: npm packages, the build (dist/ for the two programs, and for the library
# client/concurrency/dist/), and etcd with etcdctl, linked as .cache/bin/etcd and .cache/bin/etcdctl.
# Does only what is missing or outdated, says what it does on standard error, needs no root and
# writes nothing outside the project (but the caches of npm and Homebrew).
#   bash setup.sh [build]   with `build`: all but etcd, for the library to be packed
#   ETCD_BIN_DIR   use the etcd and etcdctl in this folder; default: those on PATH, else those
#                  fetched before, else fetched from the distribution's packages
# Keeps to bash 3.2, the one of macOS.
set -euo pipefail
unset CDPATH

main() {
  local etcd_bin_dir=${ETCD_BIN_DIR:-}
  if [ -n "$etcd_bin_dir" ]; then
    etcd_bin_dir=$(cd "$etcd_bin_dir" 2>/dev/null && pwd) || fail "ETCD_BIN_DIR is $ETCD_BIN_DIR, which is no folder"
  fi
  # The user's etcd settings are not for the binaries that are tried here.
  unset ${!ETCD_@} ${!ETCDCTL_@}
  # Before 3.5 etcd runs on arm64 only when told so.
  case $(uname -m) in aarch64 | arm64) export ETCD_UNSUPPORTED_ARCH=arm64 ;; esac

  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  root=$(pwd)
  check_node
  mkdir -p .cache/bin
  one_at_a_time
  install_packages
  build
  if [ "${1:-}" != build ]; then provide_etcd; fi
}

say() { echo "setup: $*" >&2; }

fail() {
  say "$*"
  exit 1
}

check_node() {
  local version
  version=$(node --version) || fail 'Node.js 20.19 or newer is needed, and there is no node on PATH'
  [[ $version =~ ^v([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] >= 20019)) ||
    fail "Node.js 20.19 or newer is needed; this is $version"
}

# Waits for another set-up of this project to end. The lock ends with this shell.
one_at_a_time() {
  exec 9>.cache/setup.lock
  if command -v flock >/dev/null; then
    flock -n 9 || { say 'waiting for another set-up to end' && flock 9; }
  else
    perl -e 'use Fcntl ":flock"; open(LOCK, ">&=9") && flock(LOCK, LOCK_EX) || die $!'
  fi
}

# The stamp is a copy of the package-lock.json that was installed. npm rewrites its own record
# whenever it changes node_modules, so a stamp older than that record says nothing.
install_packages() {
  local stamp=node_modules/.installed-package-lock.json cache
  if cmp -s package-lock.json "$stamp" && ! [ node_modules/.package-lock.json -nt "$stamp" ]; then
    return
  fi
  say 'installing npm packages'
  cache=$(npm config get cache)
  mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || cache=$root/.cache/npm
  # None of the packages needs its install scripts.
  npm ci --include=dev --ignore-scripts --no-audit --no-fund --no-update-notifier \
    --loglevel=error --cache "$cache" >/dev/null
  cp package-lock.json "$stamp"
}

# The stamp lists every input of the build with its checksum.
build() {
  local stamp=.cache/built inputs
  inputs=$(find client storage package-lock.json tsconfig.json scripts/tsconfig.build.json \
    scripts/bundle -type f ! -name '*.test.ts' ! -path '*/dist/*' -exec cksum {} + |
    LC_ALL=C sort -k 3)
  if [ -x dist/client/main.js ] && [ -x dist/storage/main.js ] &&
    [ -f client/concurrency/dist/index.js ] &&
    [ "$inputs" = "$(cat "$stamp" 2>/dev/null)" ]; then
    return
  fi
  say 'building'
  rm -rf .cache/dist
  node_modules/.bin/tsc -p scripts/tsconfig.build.json --outDir .cache/dist
  node_modules/.bin/vite build --config scripts/bundle/vite.config.ts --outDir .cache/dist/client
  # These went into it.
  rm -f .cache/dist/client/key-press.* .cache/dist/client/storage-client.*
  # What the page is made of, beside TypeScript.
  mkdir -p .cache/dist/storage/page
  cp storage/page/*.{html,css,js,svg} .cache/dist/storage/page/
  chmod +x .cache/dist/client/main.js .cache/dist/storage/main.js
  rm -rf dist client/concurrency/dist
  cp -R .cache/dist/client/concurrency client/concurrency/dist
  mv .cache/dist dist
  printf '%s\n' "$inputs" >"$stamp"
}

provide_etcd() {
  local why='' not_on_path=''
  if [ -n "$etcd_bin_dir" ]; then
    use "$etcd_bin_dir/etcd" "$etcd_bin_dir/etcdctl" || fail "ETCD_BIN_DIR does not do: $why"
    return
  fi
  if command -v etcd >/dev/null && [ "$(on_path etcd)" != "$root/.cache/bin/etcd" ]; then
    if use "$(on_path etcd)" "$(on_path etcdctl)"; then return; fi
    not_on_path="not taking etcd from PATH: $why"
  fi
  if use_folder "$root/.cache/etcd/usr/bin"; then return; fi
  if [ -n "$not_on_path" ]; then say "$not_on_path"; fi
  if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
    fetch_with_apt
    use_folder "$root/.cache/etcd/usr/bin" || advise "the fetched packages do not do: $why"
  elif command -v brew >/dev/null; then
    if use_folder "$(brew --prefix)/opt/etcd/bin"; then return; fi
    say 'installing etcd with Homebrew'
    brew install --quiet etcd >&2 || advise 'Homebrew could not install etcd'
    use_folder "$(brew --prefix etcd)/bin" || advise "Homebrew's etcd does not do: $why"
  else
    advise 'there is neither an etcd, nor apt-get or Homebrew to fetch one with'
  fi
}

advise() {
  fail "$*
setup: etcd and etcdctl, 3.4 or newer, are needed. Put both on PATH, or into any folder and set
setup: ETCD_BIN_DIR to it. Most systems package them (Debian and Ubuntu as etcd-server and
setup: etcd-client), and there are binaries at https://github.com/etcd-io/etcd/releases"
}

on_path() {
  local path
  path=$(type -P "$1") && (cd "$(dirname "$path")" && printf '%s/%s\n' "$(pwd)" "$1")
}

# use ETCD ETCDCTL: links them into .cache/bin. If they do not do, $why tells why not.
use() {
  usable etcd "$1" --version && usable etcdctl "$2" version || return 1
  link etcd "$1"
  link etcdctl "$2"
}

use_folder() { use "$1/etcd" "$1/etcdctl"; }

# usable NAME PATH ARGUMENT: does it say, given that argument, that it is new enough?
usable() {
  local name=$1 path=$2 output version='ersion: (([0-9]+)\.([0-9]+)[^[:space:]]*)'
  if ! [ -x "$path" ]; then
    why="there is no $name${path:+ in ${path%/*}}"
    return 1
  fi
  output=$("$path" "$3" 2>&1) || true
  if ! [[ $output =~ $version ]]; then
    why="$path does not tell its version: $output"
    return 1
  fi
  if ((BASH_REMATCH[2] * 1000 + BASH_REMATCH[3] < 3004)); then
    why="$path is version ${BASH_REMATCH[1]}, and 3.4 or newer is needed"
    return 1
  fi
}

link() {
  if [ "$(readlink ".cache/bin/$1")" = "$2" ]; then return; fi
  say "using $2"
  ln -sfn "$2" ".cache/bin/$1"
}

# Downloads the packages and unpacks them into .cache/etcd. Nothing is installed or started.
fetch_with_apt() {
  local work=$root/.cache/apt log package
  # For the case that the system's package lists are missing or outdated.
  local own_lists=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
  rm -rf "$work"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/packages" "$work/etcd"
  say 'fetching the packages etcd-server and etcd-client, to unpack them into .cache/etcd'
  cd "$work/packages"
  log=$(apt_get download etcd-server etcd-client 2>&1) ||
    log=$(apt_get "${own_lists[@]}" update 2>&1 &&
      apt_get "${own_lists[@]}" download etcd-server etcd-client 2>&1) ||
    advise "apt-get could not fetch them:
$log"
  cd "$root"
  for package in "$work"/packages/*.deb; do dpkg -x "$package" "$work/etcd"; done
  rm -rf .cache/etcd
  mv "$work/etcd" .cache/etcd
  rm -rf "$work"
}

# Downloads as the user who runs it, root too: the sandbox user may not write to the project.
apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root \
    -o Acquire::Languages=none "$@"
}

main "$@"
