package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier"
)

// notifyURL is the name of the setting of the webhook.
const notifyURL = "notify-url"

// otlpEndpoint is the name of the setting of the collector.
const otlpEndpoint = "otlp-endpoint"

// Stdout is the path that stands for standard output.
const Stdout = "-"

// Output holds the settings of logs, decisions and spans.
type Output struct {
	LogLevel        slog.Level
	LogFormat       string
	Decisions       string // a path, or [Stdout]
	DecisionsSample [twotier.VerdictCount]float64
	NotifyURL       string // it may have a password
	OTLPEndpoint    string // with a path
	// OTLPIgnored is the reason why the collector that the variables of OpenTelemetry name gets no
	// spans; it is nil if they name none, or if another collector gets them.
	OTLPIgnored error
}

func logSettings(o *Output) []setting {
	return []setting{
		{name: "log-level", def: "info", arg: "LEVEL", help: "debug, info, warn or error",
			choices: []string{"debug", "info", "warn", "error"},
			set:     func(text string) error { return o.LogLevel.UnmarshalText([]byte(text)) }},
		{name: "log-format", def: "text", arg: "FORMAT", help: "text or json, on stderr",
			choices: []string{"text", "json"},
			set:     setText(&o.LogFormat)},
	}
}

func outputSettings(o *Output) []setting {
	return []setting{
		{name: "decisions", arg: "FILE",
			help: "append what acquires decided to this file, or write it to stdout if it is -: " +
				"a line of JSON for each rule that judged a key; never waited for; opened again " +
				"on SIGHUP",
			set: setText(&o.Decisions)},
		{name: "decisions-sample", def: "1", arg: "SHARE",
			help: "share of them to write: a number from 0 to 1 for all, or by verdict, such as " +
				"refused=1,shadow_refused=1,allowed=0.01, where those left out are not written",
			set: setParsed(&o.DecisionsSample, parseShares)},
		{name: notifyURL, arg: "URL",
			help: "post limits whose counts have reached the warning level of their rule (warn), " +
				"as JSON, to this URL: once for each key and window; never waited for",
			set: setChecked(&o.NotifyURL, checkNotifyURL)},
		{name: otlpEndpoint, arg: "URL",
			help: "send spans of requests whose traceparent is sampled to this collector of " +
				"OpenTelemetry (OTLP over HTTP; the path is /v1/traces if there is none); never " +
				"waited for; in its place OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or " +
				"OTEL_EXPORTER_OTLP_ENDPOINT may be set",
			set: setParsed(&o.OTLPEndpoint, parseEndpoint)},
	}
}

// parseShares reads a share for all verdicts, or a list of them with shares.
func parseShares(text string) (shares [twotier.VerdictCount]float64, err error) {
	if !strings.Contains(text, "=") {
		all, err := parseShare(text)
		for v := range shares {
			shares[v] = all
		}
		return shares, err
	}
	given := [twotier.VerdictCount]bool{}
	for _, part := range strings.Split(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		v, err := twotier.ParseVerdict(name)
		if err != nil {
			return shares, err
		}
		if given[v] {
			return shares, fmt.Errorf("%s is there twice", name)
		}
		given[v] = true
		if shares[v], err = parseShare(number); err != nil {
			return shares, err
		}
	}
	return shares, nil
}

// parseShare reads a number from 0 to 1.
func parseShare(text string) (float64, error) {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || !(share >= 0 && share <= 1) { // NaN compares with nothing
		return 0, fmt.Errorf("%q is not a number from 0 to 1", text)
	}
	return share, nil
}

// tracesPath is the path at which collectors accept spans.
const tracesPath = "/v1/traces"

// parseEndpoint reads the URL of a collector, and adds the path if it has none.
func parseEndpoint(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	const want = "want a URL such as http://localhost:4318"
	u, err := url.Parse(text)
	switch {
	case err != nil: // its text would show a password
		return "", errors.New("not a URL; " + want)
	case u.User != nil, strings.Contains(text, "@"): // without a scheme it is no user to Parse
		return "", errors.New("it has a password; set OTEL_EXPORTER_OTLP_HEADERS to " +
			"authorization=... instead")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "",
		u.Fragment != "":
		return "", fmt.Errorf("%q is not the URL of a collector; %s", text, want)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// checkNotifyURL accepts the URL of a webhook, or nothing. Its errors show no part of the URL,
// which may be a credential.
func checkNotifyURL(text string) error {
	const want = "want a URL such as https://hooks.example.com/warnings"
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil
	case err != nil:
		return errors.New("not a URL; " + want)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return errors.New("not a URL with http:// or https:// and a host; " + want)
	case u.Fragment != "":
		return errors.New("a URL with a fragment, which is not sent; " + want)
	}
	return nil
}

// addCollector adds to values the collector that the standard variables of OpenTelemetry name,
// unless one of our own settings names one. Platforms set these variables for all their processes
// alike, and most of them for gRPC, so an unusable collector is no mistake in the configuration of
// this server: the error is the reason for leaving it out.
func addCollector(values map[string]value, vars map[string]string) error {
	v, ok := collectorOf(vars)
	if _, own := values[otlpEndpoint]; own || !ok {
		return nil
	}
	if protocol := collectorVariable(vars, "PROTOCOL").text; protocol == "grpc" {
		return fmt.Errorf("%s: OTLP over gRPC is not spoken, only over HTTP", v.where)
	}
	if _, err := parseEndpoint(v.text); err != nil {
		return fmt.Errorf("%s: %w", v.where, err)
	}
	if v.where == forAll+"ENDPOINT" { // it is for logs and metrics too
		v.text = strings.TrimSuffix(v.text, "/") + tracesPath
	}
	values[otlpEndpoint] = v
	return nil
}

// collectorOf returns the collector that the standard variables name, unless they turn spans off.
func collectorOf(vars map[string]string) (v value, ok bool) {
	exporters := vars["OTEL_TRACES_EXPORTER"] // a list
	disabled := strings.EqualFold(vars["OTEL_SDK_DISABLED"], "true")
	if disabled || exporters != "" && !slices.Contains(strings.Split(exporters, ","), "otlp") {
		return value{}, false
	}
	v = collectorVariable(vars, "ENDPOINT")
	return v, v.text != ""
}

// The prefixes of the OpenTelemetry variables for spans, and for all signals.
const forSpans, forAll = "OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"

// collectorVariable returns the variable of that name for spans, or else the one for all signals.
func collectorVariable(vars map[string]string, name string) value {
	for _, prefix := range []string{forSpans, forAll} {
		if text := vars[prefix+name]; text != "" {
			return value{text: text, origin: FromEnvironment, where: prefix + name}
		}
	}
	return value{}
}
