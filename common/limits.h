/* limits: every maximum in one place, each with the reason for its number. Builders of buffers,
 * queues and lists take one of these. */
#pragma once

enum {
    LIMIT_PATH_BYTES = 4096, /* PATH_MAX of Linux */
    LIMIT_ID_BYTES = 64,     /* ids in URLs: [A-Za-z0-9_-]{1,64} */
    LIMIT_NAME_BYTES = 128,  /* model names, suffixes, users */
    LIMIT_RANKS = 64,        /* one node: eight GPUs today, room for rehearsal on CPUs */
    LIMIT_GPU_BYTES = 48,    /* a GPU's UUID and its NUL: "GPU-" and 36 characters */
    LIMIT_JSON_BODY_BYTES =
        1 << 20, /* a job with metadata is under 64 KiB; jansson holds about 10x in memory */
    LIMIT_JSON_DEPTH = 32,          /* deepest legal request is 5 */
    LIMIT_SETTINGS_BYTES = 1 << 20, /* the settings file */
    LIMIT_FRAME_BYTES = 64 * 1024,  /* one wire frame: a launch plan is under 8 KiB */
    LIMIT_LOG_LINE_BYTES = 4096,    /* one log line; longer ones are cut */
    LIMIT_LAST_WORDS_BYTES = 1024,  /* a dying rank's sentence = ERR_TEXT_MAX */
    LIMIT_LINE_BYTES =
        256 << 20, /* one JSONL line: a 60M token document (field case R02 has 200 MB) */
    LIMIT_MODEL_CONFIG_BYTES = 1 << 20, /* config.json; real ones are under 4 KiB */
    LIMIT_TOKENIZER_BYTES = 128 << 20,  /* tokenizer.json; Qwen3's is 11 MB */
    LIMIT_WORD_BYTES = 16 << 20, /* a run that no pattern splits: merging takes 36 bytes a byte */
    LIMIT_SAFETENSORS_HEADER_BYTES = 100 << 20, /* the format's own limit */
    LIMIT_TEXT_BYTES = 512,                     /* webhook: those of chat services have 200 */
    LIMIT_EXPERIMENT_POINTS = 256,  /* planned while the request waits, half a ms each */
    LIMIT_EXPERIMENT_SEARCHES = 16, /* of the longest context: 10 ms each */
    LIMIT_EXPERIMENTS_OPEN = 32,    /* of a user, that have not ended: a round reads all of them */
    LIMIT_LIST_ITEMS = 16,          /* tags, depends_on: as metadata's pairs */
    LIMIT_METADATA_PAIRS = 16,      /* OpenAI's */
    LIMIT_METADATA_KEY_CHARS = 64,  /* OpenAI's; characters of Unicode, up to 4 bytes each */
    LIMIT_METADATA_VALUE_CHARS = 512, /* OpenAI's */
    LIMIT_SUFFIX_BYTES = 64,          /* OpenAI's */
    LIMIT_EPOCHS = 1000,              /* OpenAI takes 50; tiny files need more */
    LIMIT_PAGE_ROWS = 10000,          /* OpenAI's largest page */
    LIMIT_ANSWER_BYTES =
        64 << 20,       /* one JSON answer; a page of jobs that would be longer has fewer of them */
    LIMIT_HEADS = 1024, /* query heads, as in api/job_fields.def; the largest models have 128 */
    LIMIT_LAYERS = 1024,            /* four times the deepest published model */
    LIMIT_VOCAB = 1 << 24,          /* sixty times the largest published vocabulary */
    LIMIT_MODEL_WIDTH = 1 << 22,    /* hidden, MLP, heads * head_dim: element counts */
                                    /* of whole models stay below 2^60 */
    LIMIT_SAFETENSORS_FILES = 4096, /* shards of a model; the largest have about 200 */
    LIMIT_RANK_LOG_BYTES =
        64 << 20, /* a rank's captured output; later output is dropped and said so */
    LIMIT_JOBS_UNFINISHED = 10000,  /* jobs in the daemon's memory, 4 KiB each; lists of them are */
                                    /* searched linearly */
    LIMIT_USERS = 10000,            /* whose use is kept, 200 bytes each */
    LIMIT_REPORT_BYTES = 4 << 20,   /* what a rank keeps for a daemon that is away: some 20,000 */
                                    /* steps of metrics, hours */
    LIMIT_RANK_LINKS = 256,         /* connections to the job socket: four a rank of a full node */
    LIMIT_PROFILE_STEPS = 100,      /* in a profile; more tell no more */
    LIMIT_PROFILE_EVENTS = 1 << 17, /* of a rank, 32 bytes each: 4 MiB */
    LIMIT_PROFILE_EVENTS_JOB = 1 << 20, /* of all ranks: a trace of 110 MiB, made in seconds */
    LIMIT_POINTS_BATCH = 8192, /* metric points between two ticks: 100 ms of 64 ranks at 1 kHz */
};

/* Beyond int. */
#define LIMIT_FILE_BYTES (100LL << 30) /* a training file: Together's documented limit */
#define LIMIT_SHARD_BYTES 5000000000LL /* of a weights file we cut: transformers' old default */
#define LIMIT_SEQ_LEN                                                           \
    (16LL << 20) /* 10M tokens is the product's aim; headroom to a power of two \
                  */
