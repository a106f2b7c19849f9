package releasetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/version"
)

// used checks an installed package: its version, the node that runs, its unit and its completions.
const used = `
twotier version | grep -F "twotier $VERSION "
twotier acquire bob --limit 1/1h
status=0; twotier acquire bob --limit 1/1h || status=$?
[ $status = 3 ]
grep -qx "enable --now twotier" systemctl.log
if command -v systemd-analyze; then
  systemd-analyze verify twotier.service >verify.log 2>&1
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
grep -qx "disable --now twotier.service" systemctl.log
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

// sources copies the clients of the checkout, because setuptools writes beside its source, and
// returns the commands of a section that use the copy and the release, one from each.
func (r *release) sources(t *testing.T, section string) (checkout, artifact string) {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "clients"))))
	lines := strings.Split(strings.TrimSpace(strings.NewReplacer("../twotier/clients", dir,
		"../twotier/dist", r.dist()).Replace(page(t, section))), "\n")
	if len(lines) != 2 {
		t.Fatalf("the page has %q", lines)
	}
	return lines[0], lines[1]
}

// TestNodePackage installs the client for Node.js from the checkout and from the release, and
// counts with it.
func TestNodePackage(t *testing.T) {
	r := of(t, "node")
	node := r.program(t).Serve(t, proctest.Options{})
	checkout, artifact := r.sources(t, "Node.js")
	for command, want := range map[string]string{checkout: version.Number, artifact: r.version} {
		s := shell{t.TempDir(), []string{"npm_config_offline=true", "npm_config_audit=false",
			"npm_config_update_notifier=false", "TWOTIER=" + node.Listen, "KEY=" + command}}
		must.Write(t, filepath.Join(s.dir, "try.mjs"), `import { readFileSync } from "node:fs";
import { Twotier } from "twotier";
import { express, fastify, hono, koa } from "twotier/middleware";
const tt = new Twotier(process.env.TWOTIER);
const answers = [];
for (let i = 0; i < 3; i++) {
  answers.push(await tt.isActionAllowed(process.env.KEY, "reply", "1h", 2));
}
tt.close();
const info = JSON.parse(readFileSync("node_modules/twotier/package.json"));
const all = [express, fastify, hono, koa].every((f) => typeof f === "function");
console.log(info.version, ...answers, all);
`)
		s.run(t, "npm init -y && "+command)
		if got := s.run(t, "node try.mjs"); got != want+" true true false true\n" {
			t.Errorf("%s: it printed %s, want %s", command, got, want)
		}
	}
}

// TestPythonPackages installs the client for Python from the checkout, the wheel and the source
// distribution, each in an environment of its own, and counts with it.
func TestPythonPackages(t *testing.T) {
	r := of(t, "python")
	python := strings.TrimSpace(shell{dir: root}.run(t, "./scripts/require setuptools"))
	node := r.program(t).Serve(t, proctest.Options{})
	checkout, wheel := r.sources(t, "Python")
	source := ""
	list, err := filepath.Glob(r.dist() + "/twotier-*.tar.gz")
	must.Succeed(t, err)
	for _, path := range list {
		if !strings.Contains(path, "-linux-") {
			source = "pip install " + path
		}
	}
	for command, want := range map[string]string{checkout: version.Number, wheel: r.version,
		source: r.version} {
		dir := t.TempDir()
		// Its setuptools are the machine's; see https://github.com/pypa/pip/issues/5735 for the 0.
		s := shell{dir, []string{"PIP_NO_INDEX=1", "PIP_NO_BUILD_ISOLATION=0",
			"PIP_DISABLE_PIP_VERSION_CHECK=1", "PATH=" + dir + "/venv/bin:" + os.Getenv("PATH"),
			"TWOTIER=" + node.Listen, "KEY=" + command}}
		if out, err := s.try(t, python+" -m venv --system-site-packages venv"); err != nil {
			t.Skipf("no python3 has venv: %v: %s", err, out)
		}
		must.Write(t, filepath.Join(dir, "try.py"), `import importlib.metadata as m, os, twotier
from twotier_middleware import ASGIMiddleware, WSGIMiddleware, django_middleware
with twotier.Twotier(os.environ["TWOTIER"]) as tt:
    answers = [tt.is_action_allowed(os.environ["KEY"], "reply", period="1h", max=2)
               for _ in range(3)]
print(m.version("twotier"), *answers, "venv" in twotier.__file__)
`)
		s.run(t, command)
		if got := s.run(t, "python try.py"); got != want+" True True False True\n" {
			t.Errorf("%s: it printed %s, want %s", command, got, want)
		}
	}
}

// TestCheckoutInstallsTheCommand installs the command from a checkout.
func TestCheckoutInstallsTheCommand(t *testing.T) {
	bin := t.TempDir()
	shell{root, []string{"GOFLAGS=-trimpath -buildvcs=false", "GOPROXY=off", "GOBIN=" + bin}}.run(t,
		page(t, "From the sources"))
	if got := (shell{dir: bin}).run(t, "./twotier version"); !strings.Contains(got,
		" "+version.Number+" ") {
		t.Errorf("the version is %s", got)
	}
}

// TestCheckoutIsAModule builds and runs a program of another module, which uses the client. The
// domain of the module's path is never asked.
func TestCheckoutIsAModule(t *testing.T) {
	s := shell{t.TempDir(), []string{"GOFLAGS=-trimpath -buildvcs=false", "GOPROXY=off", "GOSUMDB=off",
		"GOWORK=off"}}
	s.run(t, "go mod init example")
	must.Write(t, filepath.Join(s.dir, "main.go"), `package main

import (
	"fmt"

	"twotier.dev/twotier/httpapi/client"
)

func main() {
	c, err := client.New(client.Options{Addresses: []string{"127.0.0.1:1"}})
	fmt.Println(c != nil, err)
}
`)
	s.run(t, strings.ReplaceAll(page(t, "Go"), "../twotier", root))
	if got := s.run(t, "go run ."); got != "true <nil>\n" {
		t.Errorf("it printed %s", got)
	}
}

// TestNothingNeedsTheDomain: no tracked file names an address of the domain of the module's path,
// and none exempts it from Go's proxy.
func TestNothingNeedsTheDomain(t *testing.T) {
	pattern := "https?://[a-z.]*twotier" + `\.dev|@twotier\.dev|GO` + "PRIVATE|GONO" + "SUMDB"
	out, err := exec.Command("git", "-C", root, "-c", "safe.directory=*", "grep", "-nIE",
		pattern).CombinedOutput()
	if err == nil {
		t.Errorf("these depend on a domain:\n%s", out)
	} else if status := (*exec.ExitError)(nil); !errors.As(err, &status) || status.ExitCode() != 1 {
		t.Skipf("no git checkout: %v: %s", err, out)
	}
}
