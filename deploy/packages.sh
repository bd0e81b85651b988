# packages.sh: the system packages Ithaca needs, and how they are installed. Sourced by quickstart.sh and test.sh.
# shellcheck disable=SC2086 # PACKAGES_APT, missing: lists of words
# Debian 12 and later, Ubuntu 24.04 and later. Nothing is installed when everything is there.

PACKAGES_BUILD="gcc libc6-dev cmake ninja-build pkg-config libmicrohttpd-dev libjansson-dev libsqlite3-dev
libopenblas-openmp-dev libcurl4-openssl-dev libsodium-dev liburing-dev libxxhash-dev zlib1g-dev libzstd-dev
libpcre2-dev libutf8proc-dev ca-certificates"
PACKAGES_TEST="libcmocka-dev python3 python3-numpy"
PACKAGES_ALL="g++ curl git dpkg-dev"
PACKAGES_BROWSER="chromium libjs-dygraphs" # for the dashboard's test; it is skipped where they cannot be had
PACKAGES_LONG="clang clang-tidy libclang-rt-dev libomp-dev"

# A mirror that fails once is asked again; another program that installs is waited for.
PACKAGES_APT="apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120"

# Unpacks a package into a folder without installing it: nothing of it is started, no root is needed.
packages_unpack() { # package, folder
    mkdir -p "$2" && (
        cd "$2" || exit 1
        $PACKAGES_APT download "$1" 2>/dev/null || { $PACKAGES_APT update && $PACKAGES_APT download "$1"; } || exit 1
        dpkg-deb -x "$1"_*.deb . && rm -f "$1"_*.deb
    )
}

packages_missing() {
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
    done
}

packages_install() {
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "error: this system has no apt-get; install the equivalents of: $missing" >&2
        return 1
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "error: run as root: apt-get install --no-install-recommends $missing" >&2
            return 1
        fi
        as_root=sudo
    fi
    echo "installing: $missing"
    $as_root $PACKAGES_APT update || echo "apt-get update failed; trying with the lists that are there" >&2
    $as_root env DEBIAN_FRONTEND=noninteractive $PACKAGES_APT install -y --no-install-recommends $missing \
        >/dev/null || return 1
}
