package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/redisstore"
)

const doctorText = `Looks at the Redis and the nodes that a server with the same settings would use,
at the settings and rules themselves, and at what the node at --listen warns of
if it runs (TWOTIER_TOKEN: a token with the role read, where there are --tokens).
Says for each finding what to do. It takes the settings of serve, from flags,
environment and file, and changes nothing. Exit status 1 if there is a problem:
such a server would not start, or could lose counts, an address of --join does
not answer (its own included), or Redis is nearly full. A warning is no problem.`

const doctorExamples = `twotier doctor --redis redis://127.0.0.1:6379
twotier doctor --config twotier.yaml --json`

// errUnwell is the error of problems that have been printed.
var errUnwell = errors.New("there are problems")

// doctorTimeout bounds all questions of the command together.
const doctorTimeout = 10 * time.Second

func doctorCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [--redis URL] [--config FILE] [--json] [flags of serve]", Long: doctorText,
		Short: "say what is wrong with Redis and the cluster", Example: doctorExamples,
		Args: cli.RefuseArgs,
	}
	load := config.Bind(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print the findings as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(o.Environ)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
		defer cancel()
		findings, err := runDoctor(ctx, cfg)
		if err != nil {
			return err
		}
		findings = append(findings, examineJoin(ctx, &cfg, o.Environ)...)
		findings = append(findings, examineWarnings(ctx, &cfg, o.Environ)...)
		if cfg.OTLPIgnored != nil {
			findings = append(findings, doctor.Finding{Level: doctor.Warning, About: "spans",
				Found: cfg.OTLPIgnored.Error(), Do: "name a collector that takes OTLP over HTTP " +
					"with --otlp-endpoint, or set OTEL_TRACES_EXPORTER=none"})
		}
		return printFindings(o.Stdout, findings, *asJSON)
	}
	return cmd
}

// runDoctor checks everything that the configuration names.
func runDoctor(ctx context.Context, cfg config.Config) ([]doctor.Finding, error) {
	if cfg.Redis == "" {
		return []doctor.Finding{{Level: doctor.Warning, About: "--redis", Found: "not set",
			Do: "set it: without it, nothing outlives the process"}}, nil
	}
	store, err := unopenedStore(cfg)
	if err != nil {
		return nil, err
	}
	servers, refused := store.Examine(ctx)
	findings := []doctor.Finding{doctor.Refused(refused)}
	for i := range servers {
		findings = append(findings, doctor.Redis(&servers[i])...)
	}
	findings = append(findings, doctor.Nodes(ctx, cfg.Join, cfg.RequestTimeout)...)
	return findings, store.Close()
}

// unopenedStore returns the store of a server with these settings, without connecting it.
func unopenedStore(cfg config.Config) (*redisstore.Store, error) {
	ladders, err := lint.LaddersOf(&cfg)
	if err != nil {
		return nil, err
	}
	return newStore(cfg, ladders, slog.New(slog.DiscardHandler))
}

// printFindings prints the findings, and returns errUnwell if one is a problem.
func printFindings(w io.Writer, findings []doctor.Finding, asJSON bool) error {
	var unwell error
	for _, f := range findings {
		if f.Level == doctor.Problem {
			unwell = errUnwell
		}
	}
	if asJSON {
		return errors.Join(json.NewEncoder(w).Encode(map[string]any{"findings": findings}), unwell)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		fmt.Fprintf(t, "%s\t%s:\t%s\n", f.Level, f.About, f.Found)
		if f.Do != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", f.Do)
		}
	}
	return errors.Join(t.Flush(), unwell)
}
