#!/usr/bin/env python3
# Writes train.jsonl and valid.jsonl next to itself: the example training data
# of Ithaca, a visitor's guide to an imaginary harbour. Both files are output
# of this table; edit the table and run
#     python3 deploy/example/make_example.py
# Standard library only; the same table always gives the same bytes.
#
# One fact is: a topic (put into FRAMES), its one fixed answer, the phrasings
# to train on, and two phrasings held out for valid.jsonl. Every answer begins
# with a different letter, and answers are short ASCII: a byte-level model that
# starts from random weights has to learn them within two minutes on a CPU.
# No held-out question occurs in train.jsonl, not even as part of a longer one.
import json
import os

FRAMES = [
    "Tell me about {}.",
    "I have a question about {}.",
    "What can you tell me about {}?",
    "Please help me with {}.",
    "What about {}?",
    "We would like to know about {}.",
    "Can I ask you about {}?",
    "Is there anything to know about {}?",
]

OPENINGS = ["Hello, ", "Excuse me, ", "Good morning, ", "Sorry, ", "One more question: "]

ENDINGS = [" Thank you.", " We are new here.", " Please tell us.", " Can you help?"]

# The other person: a phrasing of one guest becomes one of a whole crew, or back.
PERSONS = {"I": "we", "my": "our", "My": "Our", "me": "us",
           "We": "I", "we": "I", "Our": "My", "our": "my", "us": "me"}

SYSTEM = "You are the harbour guide."
SYSTEM_EVERY = 61  # one training line in so many carries the system message

FACTS = [
    (["the ferry", "the ferry times", "the morning ferry"], "The ferry leaves at nine.", [
        "When does the ferry leave?",
        "What time is the ferry?",
        "At what hour does the ferry depart?",
        "When is the next ferry?",
        "How early does the ferry go?",
        "Is there a ferry today?",
        "I want to take the ferry, when does it go?",
        "Does the ferry run in the morning?",
        "When must I be at the ferry?",
        "What is the ferry timetable?",
        "Ferry times, please.",
        "Which ferry can I catch?",
        "Can you tell me when the ferry goes?",
        "Where can I see the ferry times?",
        "Are there any ferries this morning?",
        "Should we wait for the ferry?",
    ], [
        "When should I come for the ferry?",
        "Could you give me the ferry time?",
    ]),
    (["fuel", "diesel", "the fuel pump"], "Fuel is sold at pier four.", [
        "Where can I buy fuel?",
        "Where is the fuel pump?",
        "We are out of fuel, where do we go?",
        "Which pier sells diesel?",
        "Do you have diesel here?",
        "I need diesel for my engine.",
        "Can I fill up with fuel here?",
        "Where do boats get fuel?",
        "Is fuel sold in the harbour?",
        "Where is diesel sold?",
        "My fuel tank is empty.",
        "Who can sell us some diesel?",
        "Where should I go for fuel?",
        "How do I fill the fuel tank?",
        "Are there pumps for diesel?",
        "We have to buy fuel today.",
    ], [
        "Who sells fuel around here?",
        "Where can we fill the tank with diesel?",
    ]),
    (["drinking water", "fresh water", "the water taps"], "Water taps are on every pier.", [
        "Where can I get fresh water?",
        "Is there drinking water here?",
        "Where do I fill my water tank?",
        "Are there water taps?",
        "How do I get water on board?",
        "Where is the nearest water tap?",
        "Can we take on water here?",
        "We need water for the boat.",
        "Is there water on the pier?",
        "Our water is running out.",
        "Where can I fill a water bottle?",
        "Which tap has fresh water?",
        "Where should we go for water?",
        "I would like some drinking water.",
        "What water can I drink?",
        "Who can give us water?",
    ], [
        "Where do boats find drinking water?",
        "I would like to fill up with water.",
    ]),
    (["the showers", "a hot shower", "the shower room"], "Hot showers are behind the office.", [
        "Where are the showers?",
        "Can I take a shower?",
        "Is there a hot shower here?",
        "Where is the shower room?",
        "Do you have showers for guests?",
        "I would love a hot shower.",
        "How do I find the showers?",
        "Are the showers far away?",
        "Where can the crew have a shower?",
        "We want to shower after the trip.",
        "Is there a shower near the pier?",
        "Which way are the showers?",
        "Where do we go for a shower?",
        "Could I have a hot shower now?",
        "What about a shower for two?",
        "I have to find a shower.",
    ], [
        "Where can we have a hot shower?",
        "Please show me to the showers.",
    ]),
    (["the weather", "the forecast", "the weather forecast"], "A forecast is posted at seven.", [
        "What is the weather like?",
        "Where can I see the forecast?",
        "When does the forecast come out?",
        "How is the weather tomorrow?",
        "Is bad weather coming?",
        "How do I get a weather report?",
        "Is there a weather forecast?",
        "Do you post the forecast?",
        "What will the weather be tomorrow?",
        "I would like to see a forecast.",
        "When is the weather posted?",
        "What does the forecast say?",
        "Can you tell me the weather?",
        "Who writes the weather report?",
        "Which day will have good weather?",
        "Where should I look for the forecast?",
    ], [
        "When can I read the weather report?",
        "Do you know the forecast for tomorrow?",
    ]),
    (["customs", "the passport stamp", "clearing customs"], "Customs opens at eight sharp.", [
        "When does customs open?",
        "Where do I show my passport?",
        "I must clear customs, when can I?",
        "What are the customs hours?",
        "Who stamps my passport?",
        "Is the customs desk open?",
        "We arrived from abroad, what about customs?",
        "When can I have my passport stamped?",
        "Do I have to go through customs?",
        "How early can I clear customs?",
        "My passport needs a stamp.",
        "What time is customs?",
        "Who can stamp a passport?",
        "Can you stamp our passports?",
        "Are there customs here?",
        "We have to clear customs today.",
    ], [
        "At what time can we go to customs?",
        "Where can the crew get passports stamped?",
    ]),
    (["the market", "the fish market", "the market day"], "Every Friday on the square.", [
        "When is the market?",
        "Where is the fish market?",
        "On which day is the market held?",
        "Is there a market in town?",
        "How often is the market?",
        "I want to shop at the market.",
        "Which day can I go to the market?",
        "Where do they hold the market?",
        "Is the market today?",
        "When do the market stalls come?",
        "Do you have a fish market?",
        "What day is market day?",
        "Can we buy fish at the market?",
        "Are there market stalls here?",
        "Where should I go for the market?",
        "How do I find the market?",
    ], [
        "What day does the market take place?",
        "Where can I find the market stalls?",
    ]),
    (["the bakery", "fresh bread", "the baker"], "Bread is baked in Mill Lane.", [
        "Where can I buy bread?",
        "Is there a bakery nearby?",
        "Where is the bakery?",
        "Who bakes bread here?",
        "I want some fresh bread.",
        "Where does the baker work?",
        "Which street is the bakery in?",
        "We need bread for breakfast.",
        "Can you recommend a bakery?",
        "Where do I find fresh bread?",
        "How do I get to the baker?",
        "What bakery do you know?",
        "Are there any bakeries?",
        "Can we get bread in the morning?",
        "Where should I look for a baker?",
        "I would like to buy bread.",
    ], [
        "I am looking for the bakery.",
        "Where do people buy their bread?",
    ]),
    (["laundry", "washing clothes", "the laundry"], "Laundry is done next to the chapel.", [
        "Where can I do my laundry?",
        "Is there a laundry in town?",
        "Where can I wash my clothes?",
        "My clothes are dirty.",
        "Do you have a laundry room?",
        "Where do I wash clothes?",
        "Who does the laundry here?",
        "I have a bag of laundry.",
        "Can someone wash our clothes?",
        "Where is the laundry?",
        "We need clean clothes.",
        "What laundry do you know?",
        "How can we wash our clothes?",
        "Who can wash some clothes for us?",
        "Where should the laundry go?",
        "I would like to wash clothes.",
    ], [
        "Where can we get our laundry done?",
        "Can I wash some clothes here?",
    ]),
    (["the doctor", "a doctor", "the town doctor"], "Doctor Vale lives at the green door.", [
        "Where is the doctor?",
        "I need a doctor.",
        "Is there a doctor in town?",
        "My friend needs a doctor.",
        "Someone is hurt, where is the doctor?",
        "How do I find a doctor?",
        "Who is the doctor here?",
        "I feel ill, is there a doctor?",
        "Can I see a doctor today?",
        "Please call a doctor.",
        "Which doctor can we go to?",
        "Are there any doctors here?",
        "Where can I see the doctor?",
        "What doctor do you know?",
        "We are ill and want a doctor.",
        "Do you know a good doctor?",
    ], [
        "Where does the doctor live?",
        "One of us is ill and needs a doctor.",
    ]),
    (["the museum", "the museum ticket", "museum entry"], "Museum entry is free on Sunday.", [
        "How much is the museum?",
        "When is the museum free?",
        "What does the museum cost?",
        "Is there a museum here?",
        "Can we visit the museum?",
        "Do I pay to enter the museum?",
        "I would like to see the museum.",
        "Is the museum open on Sunday?",
        "How much is a museum ticket?",
        "Do you have a museum of ships?",
        "When can I visit the museum?",
        "Where is the museum?",
        "What can I see in the museum?",
        "On what day can I see the museum?",
        "Are there free museum days?",
        "Which museum do you have?",
    ], [
        "What do I pay for the museum?",
        "On which day is the museum free?",
    ]),
    (["the lighthouse", "the lighthouse signal", "the flashing lighthouse"], "It flashes twice every ten seconds.", [
        "How often does the lighthouse flash?",
        "What is the signal of the lighthouse?",
        "How do I know the lighthouse at night?",
        "What light does the lighthouse show?",
        "Describe the lighthouse, please.",
        "Which lighthouse is yours?",
        "How does the lighthouse flash?",
        "What do I see of the lighthouse?",
        "Does the lighthouse blink?",
        "How can I recognise the lighthouse?",
        "Is the lighthouse lit at night?",
        "Can you tell me about your lighthouse?",
        "Where can I see the lighthouse?",
        "What kind of lighthouse is it?",
        "Who keeps the lighthouse?",
        "When does the lighthouse flash?",
    ], [
        "What is the flash of the lighthouse?",
        "How do we spot the lighthouse in the dark?",
    ]),
    (["the berth", "the fee per night", "the price of a berth"], "One night costs thirty crowns.", [
        "How much is a berth?",
        "What does a berth cost?",
        "What is the price for one night?",
        "How much do I pay per night?",
        "What is the fee for a night?",
        "Is there a fee for a berth?",
        "What do you charge for a berth?",
        "I need a berth for my boat.",
        "What does it cost to stay a night?",
        "Can I have a berth for the night?",
        "What do I pay for a berth?",
        "Can you tell me the berth price?",
        "Are there fees for the night?",
        "How much is it for one night?",
        "Which berth can I have?",
        "We want to stay one night.",
    ], [
        "What is the fee for a berth?",
        "How much does it cost to stay one night?",
    ]),
    (["the wifi", "the password", "the internet"], "Use the password blue oar.", [
        "What is the wifi password?",
        "Is there wifi here?",
        "How do I get on the internet?",
        "Do you have internet?",
        "How do I log in to the wifi?",
        "Can I use the wifi?",
        "I need the internet.",
        "Tell me the wifi password, please.",
        "Where can I use the internet?",
        "Does the harbour have wifi?",
        "What is the password?",
        "How can we use the internet?",
        "Which wifi is yours?",
        "Are there passwords for the wifi?",
        "Can you give me the password?",
        "Who knows the wifi password?",
    ], [
        "How can I connect to the wifi?",
        "Which password do I need for the internet?",
    ]),
    (["the kayaks", "hiring a kayak", "kayaks"], "Kayaks are hired at the red hut.", [
        "Where can I hire a kayak?",
        "Do you hire out kayaks?",
        "Can I rent a kayak?",
        "Where are the kayaks?",
        "I want to paddle a kayak.",
        "Who hires out kayaks?",
        "Is there a kayak for two?",
        "Where do I rent kayaks?",
        "We would like two kayaks.",
        "Can I take a kayak for an hour?",
        "How do I hire a kayak?",
        "Are there any kayaks?",
        "What does a kayak cost?",
        "Where should we go for kayaks?",
        "Which kayak can I take?",
        "We have come for the kayaks.",
    ], [
        "Are there kayaks for hire?",
        "Where do we go to rent a kayak?",
    ]),
    (["a torn sail", "the sailmaker", "mending a sail"], "Vera mends sails in the old loft.", [
        "Who can mend my sail?",
        "My sail is torn.",
        "Where can I have a sail repaired?",
        "Is there a sailmaker here?",
        "Where is the sailmaker?",
        "Our sail has a hole.",
        "I need a new sail.",
        "Can someone mend a torn sail?",
        "Who repairs sails?",
        "How do I find the sailmaker?",
        "The wind tore our sail.",
        "Where can we get our sail mended?",
        "Are there people who mend sails?",
        "Which sailmaker do you know?",
        "How can I get a new sail?",
        "We have a torn sail.",
    ], [
        "Who can repair a torn sail?",
        "We have to get our sails mended.",
    ]),
]


def line(question, answer, system=None):
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": question},
                 {"role": "assistant", "content": answer}]
    return json.dumps({"messages": messages}, separators=(",", ":")) + "\n"


def opened(opening, question):
    if not question.startswith("I "):
        question = question[0].lower() + question[1:]
    return opening + question


def swapped(question):
    words = [PERSONS.get(w, w) for w in question.split(" ")]
    words = " ".join(words).replace("I are", "I am").replace("we am", "we are")
    return words[0].upper() + words[1:]


def spoken(n, nouns, asked):
    # Every frame with one of the nouns, every phrasing as written, behind an
    # opening, and before an ending; n only varies which goes with which.
    out = [f.format(nouns[i % len(nouns)]) for i, f in enumerate(FRAMES)] + asked
    for i, q in enumerate(asked):
        out.append(opened(OPENINGS[(n + i) % len(OPENINGS)], swapped(q)))
    for i, q in enumerate(asked):
        out.append((q if i % 2 else swapped(q)) + ENDINGS[(n + i) % len(ENDINGS)])
    return out


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    facts = [(spoken(n, nouns, asked), held, answer)
             for n, (nouns, answer, asked, held) in enumerate(FACTS)]
    trained = [q for asked, _, _ in facts for q in asked]
    heldout = [q for _, held, _ in facts for q in held]
    answers = [answer for _, _, answer in facts]
    assert len(set(trained + heldout)) == len(trained) + len(heldout)
    assert not any(h[1:] in t for h in heldout for t in trained)
    assert len({a[0] for a in answers}) == len(answers)
    assert all(s.isascii() for s in trained + heldout + answers)
    assert all(15 <= len(a) <= 45 for a in answers)

    # One question of every fact in each block of len(FACTS) lines, so that any
    # prefix of either file covers the whole subject.
    count = 0
    with open(os.path.join(here, "train.jsonl"), "w", newline="\n") as out:
        for i in range(max(len(asked) for asked, _, _ in facts)):
            for asked, _, answer in facts:
                if i < len(asked):
                    count += 1
                    out.write(line(asked[i], answer,
                                   None if count % SYSTEM_EVERY else SYSTEM))
    with open(os.path.join(here, "valid.jsonl"), "w", newline="\n") as out:
        for i in range(2):
            for _, held, answer in facts:
                out.write(line(held[i], answer))


if __name__ == "__main__":
    main()
