package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/warning"
)

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
	running, err := warningsOf(ctx, cfg, environ)
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
			Found: fmt.Sprintf("%d", len(running))})
	}
	for _, w := range running {
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

// warningsOf requests the warnings of the node at --listen.
func warningsOf(ctx context.Context, cfg *config.Config, environ []string) ([]warning.Warning,
	error) {
	var answer struct{ Warnings []warning.Warning }
	err := askNode(ctx, cfg, environ, "/v1/rules?warnings=true", &answer)
	return answer.Warnings, err
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
