package releasetest

import "testing"

// used checks an installed package: its version, the node that runs, its unit and its completions.
const used = `
twotier version | grep -F "twotier $VERSION "
twotier acquire bob --limit 1/1h
status=0; twotier acquire bob --limit 1/1h || status=$?
[ $status = 3 ]
grep -qx "enable --now twotier" systemctl.log
if command -v systemd-analyze; then
  systemd-analyze verify twotier.service twotier.socket >verify.log 2>&1
  [ ! -s verify.log ] || { cat verify.log; exit 1; }
fi
! grep -E 'LoadCredential|/usr/local' /usr/lib/systemd/system/twotier.service
bash -c '. /usr/share/bash-completion/completions/twotier && complete -p twotier'
grep -x 'LoadCredential=tokens:/etc/twotier/tokens' /usr/share/doc/twotier/examples/secrets.conf
[ "$(twotier serve --print-config --config /etc/twotier/twotier.yaml | grep -c ' file')" -ge 1 ]
cp /usr/share/doc/twotier/examples/rules.yaml rules.yaml
twotier rules check rules.yaml
`

// upgraded checks that an upgrade restarts the node, and does not stop it.
const upgraded = `
grep -qx "try-restart twotier.service" systemctl.log
! grep "disable" systemctl.log
`

// removed checks that a removal stops the node, and leaves nothing.
const removed = `
grep -qx "disable --now twotier.service twotier.socket" systemctl.log
[ "$(tail -n 1 systemctl.log)" = daemon-reload ]
! find /usr/bin /usr/lib/systemd /usr/share/doc /usr/share/bash-completion | grep twotier
`

// TestDebianPackage installs, uses, upgrades and removes the .deb with dpkg.
func TestDebianPackage(t *testing.T) {
	r := of(t, "packages")
	need(t, "dpkg")
	r.onCopy(t, page(t, "Debian and Ubuntu")+used+`
[ "$(dpkg-query -W -f '${db:Status-Status} ${Conffiles}' twotier | tr -d '\n' | cut -c 1-34)" = \
  "installed  /etc/twotier/twotier.yaml" ] || dpkg-query -s twotier
dpkg --verify twotier
mkdir -p /run/systemd/system
echo "# mine" >>/etc/twotier/twotier.yaml
dpkg -i dist/*.deb </dev/null
grep -x "# mine" /etc/twotier/twotier.yaml
`+upgraded+`
dpkg -r twotier
`+removed+`
grep -x "# mine" /etc/twotier/twotier.yaml
dpkg -P twotier
[ ! -e /etc/twotier ]
`)
}

// TestRPM installs, uses, upgrades and removes the .rpm. Where dpkg installs the machine, rpm has
// no list of its packages, such as the shell.
func TestRPM(t *testing.T) {
	r := of(t, "packages")
	need(t, "rpm")
	r.onCopy(t, `rpm() { command rpm --nodeps "$@"; }
`+page(t, "Fedora and RHEL")+used+`
[ "$(command rpm -q --configfiles twotier)" = /etc/twotier/twotier.yaml ]
command rpm -V --nodeps twotier
mkdir -p /run/systemd/system
echo "# mine" >>/etc/twotier/twotier.yaml
rpm -U --replacepkgs dist/*.rpm
grep -x "# mine" /etc/twotier/twotier.yaml
`+upgraded+`
rpm -e twotier
`+removed+`
grep -x "# mine" /etc/twotier/twotier.yaml.rpmsave
`)
}
