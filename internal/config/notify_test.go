package config_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/must"
)

// TestNotifyURL accepts URLs of webhooks, and refuses other texts without showing any part of them.
// Printed settings show the scheme and the host alone.
func TestNotifyURL(t *testing.T) {
	for text, want := range map[string]string{
		"": `""`, "https://hooks.example/hunter2?token=hunter2": "https://hooks.example/***",
		"http://user:hunter2@127.0.0.1:8080": "http://127.0.0.1:8080/***",
	} {
		c := mustParse(t, []string{"--notify-url", text}, nil)
		var printed strings.Builder
		must.Succeed(t, c.Print(&printed))
		if c.NotifyURL != text || strings.Contains(printed.String(), "hunter2") ||
			!strings.Contains(printed.String(), "\nnotify-url: "+want+" # flag\n") {
			t.Errorf("%q: %q, printed\n%s", text, c.NotifyURL, printed.String())
		}
	}
	for text, want := range map[string]string{
		"hooks.example/hunter2": "not a URL with http:// or https:// and a host",
		"ftp://hunter2":         "not a URL with http:// or https:// and a host",
		"http:///hunter2":       "not a URL with http:// or https:// and a host",
		"http://h/%zzhunter2":   "not a URL; want",
		"http://h/#hunter2":     "a URL with a fragment",
	} {
		_, err := config.Parse(nil, []string{"TWOTIER_NOTIFY_URL=" + text})
		if err == nil || !strings.HasPrefix(err.Error(), "--notify-url: "+want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
