package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/warning"
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

// nodeTimeout bounds how long doctor waits for the warnings of the node at --listen.
const nodeTimeout = 2 * time.Second

// examineWarnings returns the findings about settings and rules: the warnings of a server with
// these settings, and the warnings of the node at --listen if it runs, which knows the rules in
// force and its requests.
func examineWarnings(ctx context.Context, cfg *config.Config, environ []string) []doctor.Finding {
	list, err := lintConfig(cfg)
	var findings []doctor.Finding
	if err != nil {
		findings = append(findings, doctor.Finding{Level: doctor.Problem, About: "rules",
			Found: err.Error(), Do: "a server does not start with them; change what it names"})
	}
	const about = "warnings of the node at --listen"
	var running struct{ Warnings []warning.Warning }
	err = askNode(ctx, cfg, environ, "/v1/rules?warnings=true", &running)
	_, isDial := errors.AsType[*net.OpError](err)
	switch {
	case isDial:
		findings = append(findings, doctor.Finding{Level: doctor.Fine, About: about,
			Found: "not known, because it does not run: " + err.Error()})
	case err != nil:
		findings = append(findings, doctor.Finding{Level: doctor.Warning, About: about,
			Found: err.Error(), Do: "set TWOTIER_TOKEN to a token with the role read " +
				"for all namespaces, or look at its log"})
	default:
		findings = append(findings, doctor.Finding{Level: doctor.Fine, About: about,
			Found: strconv.Itoa(len(running.Warnings))})
	}
	for _, w := range running.Warnings {
		if !slices.ContainsFunc(list, func(o warning.Warning) bool {
			return o.Code == w.Code && o.Reason == w.Reason
		}) {
			list = append(list, w)
		}
	}
	return append(findings, doctor.Warnings(list)...)
}

// pinnedTLS returns the settings of a client that talks only to the owner of a certificate, under
// any name, and presents that certificate itself, as nodes do.
func pinnedTLS(pair tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		InsecureSkipVerify: true, // in place of which the certificate is compared
		VerifyConnection: func(c tls.ConnectionState) error {
			if !bytes.Equal(c.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return errors.New("it has another certificate than --tls-cert")
			}
			return nil
		}}
}

// examineJoin compares --join with the members that the node at --listen knows. There is no finding
// if it does not run, or has no other members.
func examineJoin(ctx context.Context, cfg *config.Config, environ []string) []doctor.Finding {
	var view cluster.View
	if cfg.Gossip == "" || askNode(ctx, cfg, environ, "/v1/cluster", &view) != nil ||
		len(view.Members) < 2 {
		return nil
	}
	return []doctor.Finding{doctor.Join(ctx, cfg.Join, []string{cfg.Gossip, cfg.GossipAdvertise},
		len(view.Members))}
}

// askNode asks the node at --listen and decodes its answer.
func askNode(ctx context.Context, cfg *config.Config, environ []string, path string,
	answer any) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	base := "http://"
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	if cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return err
		}
		base, transport.TLSClientConfig = "https://", pinnedTLS(pair)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		base+reachable(cfg.Listen)+path, nil)
	if err != nil {
		return err
	}
	for _, entry := range environ {
		if token, ok := strings.CutPrefix(entry, "TWOTIER_TOKEN="); ok && token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return json.NewDecoder(http.MaxBytesReader(nil, response.Body, 1<<20)).Decode(answer)
}

const storedText = `Reads a key from Redis itself, whether a server runs or not, and changes nothing.
Lists its events, newest first, with the width of the bucket that they are in,
and counts its different values, which have a Hash of their own. It takes the
settings of serve about Redis, from flags, environment and file. The others that
it needs, such as the hash seed, are in Redis. With --json there is a line for
each Hash. Exit status 1 if Redis holds nothing of the key.`

const storedExamples = `twotier stored 18829340001 --ns sms
twotier stored alice --redis redis://10.0.0.5:6379 --json`

// localRedis is the Redis to ask if no setting names one.
const localRedis = "redis://127.0.0.1:6379"

func storedCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stored KEY [--redis URL] [--ns NAMESPACE] [flags]", Long: storedText,
		Short: "show what Redis holds of a key", Example: storedExamples,
	}
	load := config.Bind(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, advanced := f.Annotations[config.AdvancedAnnotation]
		f.Hidden = f.Name != "config" && !strings.HasPrefix(f.Name, "redis") || advanced
	})
	cmd.Flags().Lookup("redis").Usage = "`URL` of Redis, as for serve (default " + localRedis + ")"
	ns := cmd.Flags().String("ns", "", "`NAMESPACE` of the key")
	asJSON := cmd.Flags().Bool("json", false, "print the content as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := cli.OneKey(args)
		if err != nil {
			return err
		}
		cfg, err := load(o.Environ)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		cfg.Redis = cmp.Or(cfg.Redis, localRedis)
		store, err := unopenedStore(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
		defer cancel()
		list, err := store.Stored(ctx, []byte(*ns), []byte(key))
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("the key %q of namespace %q with prefix %q is not in Redis", key,
				cmp.Or(*ns, twotier.DefaultNamespace), cfg.RedisPrefix)
		}
		for _, st := range list {
			err = errors.Join(err, printStored(o.Stdout, st, *asJSON))
		}
		return errors.Join(err, store.Close())
	}
	return cmd
}

// printStored prints the content of a Hash.
func printStored(w io.Writer, st *redisstore.Stored, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(st)
	}
	moment := func(ms int64) string {
		return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	about := "never expires"
	if st.TTL >= 0 {
		about = "expires in " + twotier.FormatMillis(st.TTL/1000*1000)
	}
	if st.Version != "" {
		about += fmt.Sprintf(", version %q of pure-Redis mode", st.Version)
	}
	for _, name := range st.Unknown {
		about += fmt.Sprintf(", unknown field %q", name)
	}
	fmt.Fprintf(w, "%q %s\n", st.Hash, about)
	if st.Values > 0 {
		kept := "values"
		if st.Sampled {
			kept = "values of a sample"
		}
		fmt.Fprintf(w, "%d different %s, last seen from %s to %s\n", st.Values, kept,
			moment(st.Oldest), moment(st.Newest))
	}
	if len(st.Cells) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tWIDTH\tEVENTS")
	for _, c := range st.Cells {
		fmt.Fprintf(t, "%s\t%s\t%d\n", moment(c.Start), twotier.FormatMillis(c.Width), c.N)
	}
	fmt.Fprintf(t, "total\t\t%d\n", st.Events)
	return t.Flush()
}
