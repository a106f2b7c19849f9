package releasetest

import (
	"os"
	"path/filepath"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// enter runs the file script on a copy of this machine: its files with a layer in memory over them,
// a network and processes of its own. All that ends with the script.
const enter = `
ip link set lo up
mount -t tmpfs tmpfs layer
mkdir layer/upper layer/work layer/root
mount -t overlay -o lowerdir=/,upperdir=layer/upper,workdir=layer/work overlay layer/root
cd layer/root
mount --rbind /dev dev
mount -t proc proc proc
rm -rf run/systemd usr/bin/systemctl
mkdir -p run srv/release/dist
mount --bind "$DIST" srv/release/dist
cp "$HERE"/script srv/release/script
cp "$HERE"/systemctl usr/bin/systemctl
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec chroot . sh -euc 'cd /srv/release && exec sh -eu script'
`

// systemctl stands in for systemd, which does not run on the copy: it logs its arguments, and
// starts the command of a unit.
const systemctl = `#!/bin/sh
echo "$*" >>/srv/release/systemctl.log
[ "$*" = "enable --now twotier" ] || exit 0
$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/twotier.service) >/srv/release/node.log 2>&1 &
for _ in $(seq 300); do
  ! twotier count started >/dev/null 2>&1 || exit 0
  sleep .1
done
cat /srv/release/node.log
exit 1
`

// onCopy runs a script in a folder beside the artifacts, on a copy of this machine. It skips the
// test where there can't be one.
func (r *release) onCopy(t *testing.T, script string) {
	t.Helper()
	for _, name := range []string{"unshare", "ip", "chroot"} {
		need(t, name)
	}
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "layer"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte(systemctl), 0o755))
	must.Write(t, filepath.Join(dir, "enter"), enter)
	must.Write(t, filepath.Join(dir, "script"), "true")
	s := shell{dir, []string{"HERE=" + dir, "DIST=" + r.dist(), "VERSION=" + r.version}}
	const alone = "unshare --mount --net --pid --fork --kill-child --mount-proc sh -eu enter"
	if out, err := s.try(t, alone); err != nil {
		t.Skipf("packages can't be installed on this machine: %v: %s", err, out)
	}
	must.Write(t, filepath.Join(dir, "script"), script)
	s.run(t, alone)
}
