package clustertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// documented lists the pages whose commands are run, each from the top in one shell, on a separate
// network.
var documented = []string{"README.md", "docs/api.md", "docs/cluster.md", "docs/comparison.md",
	"docs/doors.md", "docs/holds.md", "docs/mirror.md", "docs/operations.md", "docs/recipes.md",
	"docs/rules.md", "docs/security.md", "docs/switching.md", "docs/tour.md"}

// TestDocumentedCommands pastes every line of the blocks marked sh and console into a shell. Each
// must succeed, unless a comment marks it as refused, and must print the output on the page, except
// for values that differ from run to run. A page leaves neither processes nor names in the shell.
func TestDocumentedCommands(t *testing.T) {
	for _, name := range []string{"unshare", "ip", "curl", "redis-server", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("network namespaces: there is no %s on this machine", name)
		}
	}
	if out, err := command("", alone...); err != nil {
		t.Skipf("network namespaces: %v: %s", err, out)
	}
	for _, page := range documented {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text := must.Read(t, filepath.Join("..", "..", "..", page))
			for _, name := range []string{"nginx", "python3", "node"} {
				if _, err := exec.LookPath(name); err != nil &&
					(strings.Contains(text, "\n"+name+" ") ||
						strings.Contains(text, "\n$ "+name+" ")) {
					t.Skipf("there is no %s on this machine", name)
				}
			}
			lines := pasted(text)
			if len(lines) == 0 {
				t.Fatal("it has no commands")
			}
			lines = slices.DeleteFunc(lines, func(l line) bool { return l.isTarget(t) })
			for _, l := range lines {
				if endless.MatchString(l.command) {
					t.Errorf("this may never end: %s", l.command)
				}
			}
			lines = append(lines, line{command: leftovers, judged: true})
			for i, got := range paste(t, lines) {
				lines[i].judge(t, got)
			}
		})
	}
}

// alone runs a shell in separate network and process namespaces. Its processes end with it.
var alone = []string{"unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "true"}

// leftovers lists the processes, variables and functions that a page leaves behind.
const leftovers = `jobs -r; compgen -v -A function | sort | comm -13 names - | ` +
	`grep -v '^\(BASH\|_\)' || true`

// line is one command of a page.
type line struct {
	command string
	want    string // its output
	judged  bool   // the block shows the output
}

// pasted returns the commands of a page's blocks.
func pasted(text string) (list []line) {
	kind := ""
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\n")
		if mark, ok := strings.CutPrefix(l, "```"); ok {
			kind = mark
			continue
		}
		prompt, ok := strings.CutPrefix(l, "$ ")
		n := len(list)
		switch {
		case kind == "console" && ok:
			list = append(list, line{command: prompt, judged: true})
		case kind == "console":
			list[n-1].want += l + "\n"
		case kind == "sh" && n > 0 && strings.HasSuffix(list[n-1].command, "\\"):
			list[n-1].command += "\n" + l
		case kind == "sh" && strings.TrimSpace(l) != "":
			list = append(list, line{command: l})
		}
	}
	return list
}

// isTarget reports whether a line runs make, and checks that the Makefile has the target. Such
// lines are not run, because some targets run this test.
func (l *line) isTarget(t *testing.T) bool {
	t.Helper()
	target, ok := strings.CutPrefix(l.command, "make ")
	if !ok {
		return false
	}
	target = strings.Fields(target)[0]
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	if err != nil || !strings.Contains(string(text), "\n"+target+":") {
		t.Errorf("%s: the Makefile has no such target, %v", l.command, err)
	}
	return true
}

// outcome is the output and the exit status of a command.
type outcome struct {
	status int
	text   string
}

var (
	// server matches a command that runs until it is stopped.
	server = regexp.MustCompile(`^(go run \./cmd/|)twotier (serve|demo)[^&]*$`)
	// endless matches a loop without a bound.
	endless = regexp.MustCompile(`\b(until|while) .*; do `)
	// ended matches the shell's output after each command.
	ended = regexp.MustCompile(`(?s)(.*?)@@(\d+)@@\n`)
	// varies matches values that differ from run to run: times, ages, the indices of buckets.
	varies = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\d+h\d+m(\d+(\.\d+)?s)?\b|\d+(\.\d+)?(ms|s|m)\b|\d{4,}|p\d+\b`)
	// aged matches the age of an answer, which is not always shown.
	aged = regexp.MustCompile(`, last in step [^)]*`)
	// noticed matches an add right after the end of Redis, which the node may or may not have
	// noticed.
	noticed = regexp.MustCompile(`(?m)^(added .*) \(from memory alone[^)]*\)$`)
	// refusal matches the id of a refusal.
	refusal = regexp.MustCompile(`,"id":"[\w%-]+\.[0-9a-z]+"`)
	number  = regexp.MustCompile(`^\d{1,5}$`)
)

// paste runs commands in one shell and returns the outcome of each.
func paste(t *testing.T, lines []line) []outcome {
	t.Helper()
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString("exec 2>>stderr.log; ip link set lo up\n" +
		"compgen -v -A function | sort >names\n")
	for _, l := range lines {
		text := l.command
		if server.MatchString(text) {
			text = "rm -f server.log; " + text + " >server.log 2>&1 & S=$!\n" +
				"until grep -qs http:// server.log; do kill -0 $S || break; sleep .1; done\n" +
				"kill $S; wait $S; unset S"
		}
		fmt.Fprintf(&script, "%s\nprintf '@@%%d@@\\n' $?\n", text)
	}
	write(t, filepath.Join(dir, "go"), 0o755, goTool)
	link(t, "deploy", dir)
	link(t, "clients", dir)
	write(t, filepath.Join(dir, "script"), 0o644, script.String())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	args := append(append([]string{}, alone[1:len(alone)-1]...), "bash", "script")
	cmd := exec.CommandContext(ctx, alone[0], args...)
	cmd.Dir = dir
	program := program.Path(t)
	cmd.Env = append(os.Environ(), "PROGRAM="+program, "HOME="+dir,
		"PATH="+dir+":"+filepath.Dir(program)+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	var got []outcome
	for _, m := range ended.FindAllStringSubmatch(string(out), -1) {
		status, _ := strconv.Atoi(m[2])
		got = append(got, outcome{status, m[1]})
	}
	if len(got) != len(lines) {
		t.Fatalf("%d of %d commands ended, %v; the last was %q; %s", len(got), len(lines), err,
			lines[min(len(got), len(lines)-1)].command, logs(dir))
	}
	return got
}

// goTool replaces the Go tool, because the program has already been built.
const goTool = `#!/bin/sh
case "$1 $2" in
"run ./cmd/twotier") shift 2; exec "$PROGRAM" "$@" ;;
"build -o") mkdir -p "$(dirname "$3")" && cp "$PROGRAM" "$3" ;;
*) echo "go $*: not a documented use" >&2; exit 2 ;;
esac
`

func write(t *testing.T, path string, mode os.FileMode, text string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), mode))
}

// link makes a folder of this module appear in dir.
func link(t *testing.T, name, dir string) {
	t.Helper()
	from, err := filepath.Abs(filepath.Join("..", "..", "..", name))
	if err == nil {
		err = os.Symlink(from, filepath.Join(dir, name))
	}
	must.Succeed(t, err)
}

// logs returns the last part of each log in a folder.
func logs(dir string) string {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	var all strings.Builder
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		fmt.Fprintf(&all, "\n%s: %s", filepath.Base(path), text[max(0, len(text)-4000):])
	}
	return all.String()
}

// judge compares the outcome of a command with its page.
func (l *line) judge(t *testing.T, got outcome) {
	t.Helper()
	refused := strings.Contains(l.command, "# refused")
	if got.status != 0 && (got.status != 3 || !refused) || refused && got.status != 3 {
		t.Errorf("%s\nexit status %d, printed %s", l.command, got.status, got.text)
	}
	if l.judged && alike(got.text) != alike(l.want) {
		t.Errorf("%s\nprinted\n%sthe page says\n%s", l.command, got.text, l.want)
	}
}

// alike removes values that differ from run to run. These include the order of a hash's values and
// the number of their buckets, but not their sum.
func alike(text string) string {
	sum, numbers := 0, true
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		n, err := strconv.Atoi(l)
		if numbers = numbers && err == nil; number.MatchString(l) {
			sum += n
		}
	}
	if numbers && text != "" {
		return fmt.Sprint(sum)
	}
	text = refusal.ReplaceAllString(text, "")
	text = noticed.ReplaceAllString(aged.ReplaceAllString(text, ""), "$1 (memory)")
	return varies.ReplaceAllString(text, "#")
}

// TestPagesShowTheirFiles compares the blocks of pages with the files that commands and tests use.
func TestPagesShowTheirFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	for _, shows := range []struct{ page, mark, file string }{
		{"recipes", "yaml", "deploy/recipes/twotier.yaml"},
		{"mirror", "go", "internal/mirror/mirror_test.go"},
		{"mirror", "python", "deploy/mirror/mirror.py"},
		{"mirror", "js", "deploy/mirror/mirror.mjs"},
		{"mirror", "yaml", "deploy/mirror/mapping.yaml"},
	} {
		file := must.Read(t, filepath.Join(root, filepath.FromSlash(shows.file)))
		page := must.Read(t, filepath.Join(root, "docs", shows.page+".md"))
		blocks := strings.Split(page, "\n```"+shows.mark+"\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s.md shows no %s", shows.page, shows.mark)
		}
		for _, block := range blocks {
			if shown, _, _ := strings.Cut(block, "```"); !strings.Contains(file, "\n"+shown) {
				t.Errorf("%s does not have\n%s", shows.file, shown)
			}
		}
	}
}

// clientRules are the rules that the tests of the clients name.
const clientRules = `rules:
- {name: devices, distinct: 1/24h}
- {name: watched, distinct: 1/24h, state: shadow}
`

// TestClients runs the tests of the clients in other languages against a server that loses some of
// its answers, and one behind a proxy that has mishaps.
func TestClients(t *testing.T) {
	for name, c := range map[string]struct {
		dir  string
		args func(address string) []string
	}{
		"python3": {"python", func(a string) []string { return []string{"test_twotier.py", a} }},
		"node": {"node", func(string) []string {
			return []string{"--test", "twotier.test.mjs", "cluster.test.mjs", "middleware.test.mjs"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("there is no %s on this machine", name)
			}
			rules := must.File(t, "rules.yaml", clientRules)
			server := program.Serve(t, proctest.Options{}, "--rules", rules).Listen
			p := faultproxy.NewRaw(t, server)
			var lost []<-chan struct{}
			for _, match := range []string{" lost", " astray", " held", "1357}", `"77m"`} {
				lost = append(lost, p.SwallowMatching(match, 1, true))
			}
			p.SwallowMatching(" vanished", 1000, true)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, interpreter, c.args(p.Addr())...)
			cmd.Dir = filepath.Join("..", "..", "..", "clients", c.dir)
			cmd.Env = append(os.Environ(), "TWOTIER="+p.Addr(), "PYTHONDONTWRITEBYTECODE=1",
				"TWOTIER_BEHIND_A_PROXY="+faultproxy.Mishaps(t, server))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for i := range lost {
				select {
				case <-lost[i]:
				default:
					t.Errorf("answer %d was not lost", i)
				}
			}
		})
	}
}

// TestForkedClients runs the tests of the Python client and its middleware in processes that fork,
// in threads, in event loops and in greenlets.
func TestForkedClients(t *testing.T) {
	const none = "there is no python3 on this machine"
	const missing = "no python3 has gunicorn and gevent (Debian: gunicorn python3-gevent)"
	for name, c := range map[string]struct {
		modules, missing string // modules that the tests need
		args             []string
	}{
		"fork": {"os", none, []string{"test_fork.py", "Fork", "PreForkServer.test_threads"}},
		"gunicorn": {"gunicorn, gevent", missing,
			[]string{"test_fork.py", "PreForkServer.test_gunicorn"}},
		"concurrent": {"os", none, []string{"test_concurrent.py", "Concurrent"}},
		"gevent":     {"gunicorn, gevent", missing, []string{"test_concurrent.py", "Greenlets"}},
		"middleware": {"os", none, []string{"test_middleware.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			python := findPython(t, c.modules)
			if python == "" {
				t.Skip(c.missing)
			}
			server := program.Serve(t, proctest.Options{}).Listen
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, python, c.args...)
			cmd.Dir = filepath.Join("..", "..", "..", "clients", "python")
			cmd.Env = append(os.Environ(), "TWOTIER="+server, "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// findPython returns a Python that has some modules, or "".
func findPython(t *testing.T, modules string) string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+modules).Run() == nil {
			return python
		}
	}
	return ""
}
