package cli

import "twotier.dev/twotier/internal/imports"

// JoinPoints, FormatSize and DrawBar are exported for direct tests.
var (
	JoinPoints = joinPoints
	FormatSize = formatSize
	DrawBar    = drawBar
)

// DescribeImport describes an import, or a dry run.
func DescribeImport(r *imports.Report, dryRun bool, warnings ...string) string {
	return describeImport(r, &importFlags{dryRun: dryRun}, warnings)
}
