package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/config"
)

// TestOTLPEndpoint names the collector in every way, and in several ways at once.
func TestOTLPEndpoint(t *testing.T) {
	const flag, own, spans, all = "--otlp-endpoint=http://flag:4318",
		"TWOTIER_OTLP_ENDPOINT=https://own/", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://spans/x",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://all:4318/base/"
	for _, tt := range []struct {
		args, environ []string
		want          string
	}{
		{nil, nil, ""},
		{nil, []string{all}, "http://all:4318/base/v1/traces"},
		{nil, []string{all, spans}, "http://spans/x"},
		{nil, []string{all, spans, own}, "https://own/v1/traces"},
		{[]string{flag}, []string{all, spans, own}, "http://flag:4318/v1/traces"},
		{nil, []string{all, spans, "OTEL_SDK_DISABLED=true"}, ""},
		{[]string{flag}, []string{"OTEL_SDK_DISABLED=true"}, "http://flag:4318/v1/traces"},
	} {
		c, err := config.Parse(tt.args, tt.environ)
		if err != nil || c.OTLPEndpoint != tt.want {
			t.Errorf("%q %q: %v, got %q, want %q", tt.args, tt.environ, err, c.OTLPEndpoint,
				tt.want)
		}
	}
	for _, bad := range []string{"collector:4318", "grpc://x", "http://", "http://x/?a=b",
		"http://user:secret@x", "http://user:secret@x\x7f"} {
		_, err := config.Parse([]string{"--otlp-endpoint", bad}, nil)
		if err == nil || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "--otlp-endpoint") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestCollectorOfThePlatform sets the standard variables to values that this server can't use: it
// still starts, and reports why it sends nothing.
func TestCollectorOfThePlatform(t *testing.T) {
	const all, grpc = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
	file := filepath.Join(t.TempDir(), "twotier.yaml")
	if err := os.WriteFile(file, []byte("otlp-endpoint: http://file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args, environ  []string
		want, complain string
	}{
		{environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317"},
			complain: "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{environ: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://user:secret@x"},
			complain: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		{environ: []string{all, grpc}, complain: "gRPC"},
		{environ: []string{all, grpc, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"},
			want: "http://collector:4317/v1/traces"},
		{environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=user:secret@collector:4317"},
			complain: "password"},
		{environ: []string{all, "OTEL_TRACES_EXPORTER=none"}},
		{environ: []string{all, "OTEL_TRACES_EXPORTER=console,otlp"},
			want: "http://collector:4317/v1/traces"},
		{args: []string{"--config", file}, environ: []string{all, grpc},
			want: "http://file/v1/traces"},
		{environ: []string{all, "OTEL_TRACES_EXPORTER=otlp"},
			want: "http://collector:4317/v1/traces"},
		{environ: []string{grpc}},
		{args: []string{"--otlp-endpoint=http://own"}, environ: []string{all, grpc},
			want: "http://own/v1/traces"},
	} {
		c, err := config.Parse(tt.args, tt.environ)
		ignored := c.OTLPIgnored != nil
		if err != nil || c.OTLPEndpoint != tt.want || ignored != (tt.complain != "") {
			t.Errorf("%q %q: %v, got %q, %v, want %q, %q", tt.args, tt.environ, err, c.OTLPEndpoint,
				c.OTLPIgnored, tt.want, tt.complain)
		}
		if text := fmt.Sprint(c.OTLPIgnored); !strings.Contains(text, tt.complain) ||
			strings.Contains(text, "secret") {
			t.Errorf("%q: %s", tt.environ, text)
		}
	}
}
