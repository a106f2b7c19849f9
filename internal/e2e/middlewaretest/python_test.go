package middlewaretest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/gated"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// djangoRest is the rest of a Django project in one file.
const djangoRest = `
from django.http import HttpResponse
from django.urls import path

SECRET_KEY, ALLOWED_HOSTS, ROOT_URLCONF = "secret", ["*"], __name__

async def hello(request):
    return HttpResponse("hello")

urlpatterns = [path("", hello)]
`

// djangoApp is its application, which reads the settings.
const djangoApp = `
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
asgi, wsgi = get_asgi_application(), get_wsgi_application()
`

// TestPython runs the examples for Python, in the servers that people use.
func TestPython(t *testing.T) {
	t.Parallel()
	python := findPython(t, "fastapi, flask, django, uvicorn, gunicorn")
	node := program.Serve(t, proctest.Options{})
	uvicorn := []string{"uvicorn", "--no-proxy-headers", "--no-access-log"}
	gunicorn := []string{"gunicorn", "--preload", "--threads", "4"}
	all := pair(t, "python", "fastapi", "starlette", "flask", "middleware")
	for _, c := range []struct {
		framework
		server []string
		app    string
	}{
		{all[0], uvicorn, "app:app"}, {all[1], uvicorn, "app:app"}, {all[2], gunicorn, "app:app"},
		{framework{"django-asgi", all[3].text}, uvicorn, "app:asgi"},
		{framework{"django-wsgi", all[3].text}, gunicorn, "app:wsgi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range gated.Variants(c.name, node) {
				dir, address := t.TempDir(), freeAddress(t)
				writePython(t, dir, c.text, v.Options)
				command := append([]string{python, "-m"}, c.server...)
				if host, port, _ := strings.Cut(address, ":"); c.server[0] == "uvicorn" {
					command = append(command, "--host", host, "--port", port, c.app)
				} else {
					command = append(command, "--bind", address, c.app)
				}
				v.Check(t, start(t, dir, address, []string{"PYTHONDONTWRITEBYTECODE=1",
					"PYTHONPATH=" + top(t, "clients", "python")}, command...))
			}
		})
	}
}

// writePython writes an example with the options of a variant.
func writePython(t *testing.T, dir, text string, o gated.Options) {
	t.Helper()
	app := filepath.Join(dir, "app.py")
	if !strings.Contains(text, "MIDDLEWARE") {
		must.Write(t, app, replace(t, text, `limits={"1m": 3}, on_error="allow"`,
			"**"+pythonOptions(t, o)))
		return
	}
	text = replace(t, text, `{"limits": {"1m": 3}, "on_error": "allow"}`, pythonOptions(t, o))
	must.Write(t, filepath.Join(dir, "settings.py"), text+djangoRest)
	must.Write(t, app, djangoApp)
}

// pythonOptions returns the options of a variant as a dict of Python.
func pythonOptions(t *testing.T, o gated.Options) string {
	t.Helper()
	m := map[string]any{"limits": map[string]int{"1m": 3}, "on_error": "allow", "url": o.Server,
		"wait": 5}
	if o.Namespace != "" {
		m["ns"] = o.Namespace
	}
	if o.Name != "" {
		m["name"] = o.Name
	}
	if o.Deny {
		m["on_error"] = "deny"
	}
	if o.Trusted != "" {
		m["trusted_proxies"] = []string{o.Trusted}
	}
	text, err := json.Marshal(m)
	must.Succeed(t, err)
	return string(text)
}

// findPython returns a Python that has some modules, or skips the test.
func findPython(t *testing.T, modules string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+modules).Run() == nil {
			return python
		}
	}
	t.Skip("frameworks: no python3 has them (Debian: gunicorn python3-django python3-fastapi " +
		"python3-flask python3-uvicorn)")
	return ""
}
