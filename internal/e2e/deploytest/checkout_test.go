package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/version"
)

// checkout is a folder beside a checkout of this module, in which the commands of README run.
type checkout struct {
	t       *testing.T
	dir     string
	environ []string
}

// newCheckout returns an empty folder. Go finds modules only in its cache, npm and pip nothing.
func newCheckout(t *testing.T) *checkout {
	t.Helper()
	dir := t.TempDir()
	return &checkout{t, dir, append(os.Environ(), "GOFLAGS=-buildvcs=false",
		"GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOBIN="+filepath.Join(dir, "bin"),
		"PIP_NO_INDEX=1", "npm_config_offline=true", "npm_config_audit=false")}
}

// root returns the absolute path of a folder of this module.
func (c *checkout) root(parts ...string) string {
	c.t.Helper()
	path, err := filepath.Abs(top(parts...))
	must.Succeed(c.t, err)
	return path
}

// run runs a command in a folder and returns its output.
func (c *checkout) run(dir, command string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = dir, c.environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// documented checks that README has a command, and returns it with another path of the checkout.
func (c *checkout) documented(command, path string) string {
	c.t.Helper()
	text := strings.Join(strings.Fields(read(c.t, "README.md")), " ")
	if !strings.Contains(text, "`"+command+"`") {
		c.t.Errorf("README.md does not have %s", command)
	}
	return strings.ReplaceAll(command, "../twotier", path)
}

// TestCheckoutInstallsTheCommand installs the command from a checkout.
func TestCheckoutInstallsTheCommand(t *testing.T) {
	c := newCheckout(t)
	c.run(c.root(), c.documented("go install ./cmd/twotier", ""))
	if got := c.run(c.dir, "bin/twotier version"); !strings.Contains(got, version.Number) {
		t.Errorf("the version is %s", got)
	}
}

// TestCheckoutIsAModule builds and runs a program of another module, which uses the client. The
// domain of the module's path is never asked.
func TestCheckoutIsAModule(t *testing.T) {
	if strings.Contains(read(t, "README.md"), "GOPRIVATE") {
		t.Error("README.md depends on the domain of the module's path")
	}
	c := newCheckout(t)
	c.run(c.dir, "go mod init example")
	must.Write(t, filepath.Join(c.dir, "main.go"), `package main

import (
	"fmt"

	"twotier.dev/twotier/httpapi/client"
)

func main() {
	c, err := client.New(client.Options{Addresses: []string{"127.0.0.1:1"}})
	fmt.Println(c != nil, err)
}
`)
	c.run(c.dir, c.documented("go mod edit -replace twotier.dev/twotier=../twotier", c.root()))
	c.run(c.dir, c.documented("go get twotier.dev/twotier/httpapi/client", ""))
	if got := c.run(c.dir, "go run ."); got != "true <nil>\n" {
		t.Errorf("it printed %s", got)
	}
}

// TestCheckoutHasANodePackage installs the client for Node.js, and imports it by its name.
func TestCheckoutHasANodePackage(t *testing.T) {
	need(t, "npm")
	c := newCheckout(t)
	command := c.documented("npm install ../twotier/clients/node", c.root())
	c.run(c.dir, "npm init -y && "+command)
	got := c.run(c.dir, `node --input-type=module -e 'import { Twotier } from "twotier"; `+
		`import { express } from "twotier/middleware"; console.log(typeof Twotier, typeof express)'`)
	if got != "function function\n" {
		t.Errorf("it printed %s", got)
	}
	if text := read(t, "clients", "node", "package.json"); !strings.Contains(text,
		`"version": "`+version.Number+`"`) {
		t.Errorf("package.json has another version than %s:\n%s", version.Number, text)
	}
}

// TestCheckoutHasAPythonPackage installs the client for Python into a folder, and imports it from
// there. It installs a copy, because setuptools writes beside the source.
func TestCheckoutHasAPythonPackage(t *testing.T) {
	python := ""
	for _, name := range []string{"python3", "/usr/bin/python3"} { // Debian's has its packages
		if err := exec.CommandContext(t.Context(), name, "-c", "import setuptools, wheel, pip").
			Run(); err == nil {
			python = name
		}
	}
	if python == "" {
		t.Skip("no python3 has pip, setuptools and wheel (Debian: python3-pip)")
	}
	c := newCheckout(t)
	must.Succeed(t, os.CopyFS(filepath.Join(c.dir, "clients", "python"),
		os.DirFS(c.root("clients", "python"))))
	c.run(c.dir, python+" -m "+c.documented("pip install ../twotier/clients/python", c.dir)+
		" --no-build-isolation --target lib")
	got := c.run(c.dir, "PYTHONPATH=lib "+python+` -c "import importlib.metadata as m, twotier, `+
		`twotier_middleware as w; `+
		`print(m.version('twotier'), twotier.Twotier.__name__, w.ASGIMiddleware.__name__)"`)
	if got != version.Number+" Twotier ASGIMiddleware\n" {
		t.Errorf("it printed %s", got)
	}
}
