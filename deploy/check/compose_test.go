package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// loadCompose loads the project with Compose's own library.
func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	details := types.ConfigDetails{WorkingDir: "../compose", Environment: types.Mapping{},
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml",
			Content: read(t, "compose", "compose.yaml")}}}
	project, err := loader.LoadWithContext(t.Context(), details)
	succeed(t, err)
	return project
}

// TestComposeLoads: twotier accepts the settings of each node, mounted files exist, the files in
// the settings are mounted, and nodes have enough time to stop.
func TestComposeLoads(t *testing.T) {
	nodes := 0
	for name, service := range loadCompose(t).Services {
		for _, v := range service.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !strings.HasPrefix(name, "node-") {
			continue
		}
		nodes++
		var environ []string
		for key, value := range service.Environment {
			environ = append(environ, key+"="+*value)
			if _, err := mounted(&service, "secrets", *value); err != nil {
				t.Errorf("%s: %s: %v", name, key, err)
			}
		}
		needs := accepted(t, environ).stopping(t)
		if has := time.Duration(*service.StopGracePeriod); has <= needs {
			t.Errorf("%s has %v for stopping, which takes up to %v", name, has, needs)
		}
	}
	if nodes != 3 {
		t.Errorf("%d nodes", nodes)
	}
}

// mounted returns the path on this machine of a file in a setting of a service, whose secrets are
// in a folder. Any other setting stays as it is.
func mounted(service *types.ServiceConfig, secrets, value string) (string, error) {
	if !strings.HasPrefix(value, "/") {
		return value, nil
	}
	for _, s := range service.Secrets {
		if value == "/run/secrets/"+s.Source {
			return filepath.Join(secrets, s.Source), nil
		}
	}
	for _, v := range service.Volumes {
		if rest, ok := strings.CutPrefix(value, v.Target+"/"); ok {
			path := filepath.Join(v.Source, rest)
			_, err := os.Stat(path)
			return path, err
		}
	}
	return "", fmt.Errorf("nothing is mounted at %s", value)
}

// TestComposeTokenEditsRules makes the tokens as compose.yaml describes, starts a node with its
// settings, but alone and without Redis, and replaces its rules with the token of people.
func TestComposeTokenEditsRules(t *testing.T) {
	dir, service := t.TempDir(), loadCompose(t).Services["node-a"]
	token := makeTokens(t, dir)
	environ := []string{"TWOTIER_LISTEN=127.0.0.1:0"}
	for _, name := range []string{"TWOTIER_RULES", "TWOTIER_TOKENS", "TWOTIER_MAX_MEMORY"} {
		value := service.Environment[name]
		if value == nil {
			t.Fatalf("%s is not set", name)
		}
		path, err := mounted(&service, dir, *value)
		succeed(t, err)
		environ = append(environ, name+"="+path)
	}
	url := startNode(t, environ) + "/v1/rules"
	if status, text := ask(t, "GET", url, token, ""); status != 200 ||
		!strings.Contains(text, `"name":"login"`) {
		t.Errorf("status %d: %s", status, text)
	}
	const changed = `{"rules":[{"name":"changed","limits":["1/1m"]}]}`
	if status, text := ask(t, "PUT", url, token, changed); status != 200 {
		t.Errorf("status %d: %s", status, text)
	}
	if _, text := ask(t, "GET", url, token, ""); !strings.Contains(text, `"name":"changed"`) {
		t.Errorf("the rules are %s", text)
	}
}

// makeTokens runs the lines of compose.yaml that make tokens in a folder, and returns the token of
// people.
func makeTokens(t *testing.T, dir string) (token string) {
	t.Helper()
	path, err := program()
	succeed(t, err)
	for line := range strings.Lines(string(read(t, "compose", "compose.yaml"))) {
		rest, ok := strings.CutPrefix(line, "#   docker run --rm twotier token ")
		if !ok {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", path+" token "+rest)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		if printed := regexp.MustCompile(`tt_\S+`).Find(out); printed != nil {
			token = string(printed)
		}
	}
	return token
}

// startNode starts twotier with an environment, until the test ends, and returns its URL.
func startNode(t *testing.T, environ []string) string {
	t.Helper()
	path, err := program()
	succeed(t, err)
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, "serve")
	cmd.Env, cmd.Stderr, cmd.WaitDelay = environ, &log, time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	succeed(t, err)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct{ Listen string }
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("%v: %s", err, &log)
	}
	return "http://" + ready.Listen
}

// ask sends a request with a token and returns the answer.
func ask(t *testing.T, method, url, token, body string) (status int, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	succeed(t, err)
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("If-Match", "*")
	resp, err := http.DefaultClient.Do(q)
	succeed(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	succeed(t, err)
	return resp.StatusCode, string(answer)
}
