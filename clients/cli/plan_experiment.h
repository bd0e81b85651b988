/* plan_experiment: `ithaca experiment plan`: what each point of an experiment's file would take,
 * and how long it would run. The daemon plans it for its machine; where options say of another one,
 * nobody is asked: models are then those whose shapes are known (plan_command.h). */
#pragma once
#include "clients/cli/cli.h"

struct table;

int plan_experiment(struct cli *cli, struct err *err);
/* Reads the file that the next argument names and puts every --set FIELD=VALUE into it, FIELD being
 * a dotted path in the file: grid.seq_len=[8192], base.ithaca.gpus=2. New reference. */
int plan_experiment_file(struct cli *cli, json_t **ret, struct err *err);
/* A cell with a number of a row in its scale (number.h), or with nothing. */
void plan_experiment_cell(struct table *table, const json_t *row, const char *column, int digits,
                          double scale);
