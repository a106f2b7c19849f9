package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"

	"twotier.dev/twotier"
)

// notifyURL is the name of the setting of the webhook.
const notifyURL = "notify-url"

// Stdout is the path that stands for standard output.
const Stdout = "-"

// Output holds the settings of logs, decisions and notifications.
type Output struct {
	LogLevel        slog.Level
	LogFormat       string
	Decisions       string // a path, or [Stdout]
	DecisionsSample [twotier.VerdictCount]float64
	NotifyURL       string // it may have a password
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
